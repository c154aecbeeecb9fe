"""The Python interface: load, solve, read the result."""

import subprocess
import sys

import pytest

import latent
from latent.errors import InputError, NotFoundError
from latent.solve import solve
from tests.reasoners import QUESTIONS, make_counting_reasoner, make_reasoner
from tests.samplers import make_sampler

QUESTION = "Ivan has 88 apples. He buys 33 more. How many apples does Ivan have?"


def test_three_lines_load_a_reasoner_and_solve_a_question() -> None:
    reasoner = latent.load("coconut-tiny")
    solution = reasoner.solve(QUESTION, budget=8, sampler="gts@auto", seed=7)
    winner = solution.candidates[0]
    assert solution.answer == str(winner.answer)
    assert [t.index for t in solution.trajectories] == list(range(8))
    assert sum(c.votes for c in solution.candidates) == 8
    assert solution.confidence_kind == "calibrated"
    assert 0 < solution.confidence < 1
    assert (solution.model, solution.sampler, solution.seed) == ("coconut-tiny", "gts@auto", 7)
    assert reasoner.solve(QUESTION, budget=8, seed=7).trajectories == solution.trajectories


def test_importing_the_package_imports_no_torch() -> None:
    code = "import sys, latent; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_seed_is_drawn_and_reported() -> None:
    reasoner = make_counting_reasoner()
    first = solve(reasoner, QUESTIONS[0], make_sampler("gaussian", reasoner.width, reasoner.dtype))
    again = reasoner.solve(QUESTIONS[0], sampler="gaussian", seed=first.seed)
    assert again.trajectories == first.trajectories


def test_what_cannot_be_read_has_no_confidence() -> None:
    solution = make_reasoner("coconut").solve(QUESTIONS[0], budget=4, sampler="gaussian", seed=1)
    assert all(t.answer is None for t in solution.trajectories)
    assert (solution.answer, solution.confidence) == (None, 0.0)
    assert solution.stop_reason == "unreadable"


def test_what_is_not_there_is_named() -> None:
    with pytest.raises(NotFoundError, match="no-such-model"):
        latent.load("no-such-model")
    with pytest.raises(NotFoundError, match="gts:nobody"):
        make_reasoner().solve(QUESTIONS[0], sampler="gts:nobody")
    with pytest.raises(InputError, match="unknown vote"):
        make_reasoner().solve(QUESTIONS[0], vote="acclamation")
