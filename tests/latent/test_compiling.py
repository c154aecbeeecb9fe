"""Compiled steps give the tokens of plain ones, from a fixed set of graphs.

Most of it runs the captured graphs by torch's own operations; the code that torch.compile makes for a
CPU takes minutes to compile, so .ci/run has that.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

import latent
from latent.batch import LaneBatch
from latent.compiling import compile_steps, lane_buckets
from latent.errors import InputError
from latent.reasoner import Reasoner
from latent.rollout import Ask, Rollout, rollout
from latent.static_lanes import StaticLanes
from tests.reasoners import QUESTIONS, make_counting_reasoner, make_reasoner
from tests.samplers import make_sampler

LONG = " ".join(QUESTIONS)
# Lanes of the questions of a round; questions are of several lengths.
ROUNDS = ((1,), (5, 2, 1), (16,), (20, 3), (40,), (7, 64), (31, 1, 1, 18))


def asks_of(reasoner: Reasoner, budgets: Sequence[int]) -> list[Ask]:
    prompts = [reasoner.encode(QUESTIONS[n % len(QUESTIONS)]) for n in range(len(budgets))]
    return [
        Ask(prompt, n, tuple(range(-1, budget - 1)))
        for n, (prompt, budget) in enumerate(zip(prompts, budgets, strict=True))
    ]


def run_rounds(reasoner: Reasoner, spec: str, **options: object) -> list[Rollout]:
    sampler = make_sampler(spec, reasoner.width, torch.float32)
    if reasoner.folder is not None:
        sampler = reasoner.sampler(spec)
    return [
        done
        for budgets in ROUNDS
        for done in rollout(reasoner, sampler, asks_of(reasoner, budgets), lane_limit=64, **options)  # type: ignore[arg-type]
    ]


def assert_same_tokens(left: Sequence[Rollout], right: Sequence[Rollout]) -> None:
    for one, other in zip(left, right, strict=True):
        for a, b in zip(one.trajectories, other.trajectories, strict=True):
            assert (a.index, a.tokens, a.answer) == (b.index, b.tokens, b.answer)
            assert a.token_logprobs == pytest.approx(b.token_logprobs, abs=1e-4)


def test_lanes_are_padded_to_few_sizes() -> None:
    assert lane_buckets(256) == (16, 32, 64, 128, 256)
    assert lane_buckets(100) == (16, 32, 64, 112)
    assert lane_buckets(1) == (16,)


@pytest.mark.parametrize("model", ["coconut-tiny", "codi-tiny"])
def test_compiled_tokens_are_the_plain_ones_and_nothing_is_compiled_again(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reasoner = latent.load(model)
    plain = run_rounds(reasoner, "gts")
    compile_steps(reasoner, lane_buckets(64), (48, 96), backend="aot_eager")
    rows: set[int] = set()
    step = StaticLanes.step
    monkeypatch.setattr(
        StaticLanes,
        "step",
        lambda self, inputs, slot: (rows.add(len(inputs)), step(self, inputs, slot))[1],
    )
    with torch.compiler.set_stance("fail_on_recompile"):
        compiled = run_rounds(reasoner, "gts")
    assert_same_tokens(plain, compiled)
    assert rows == {16, 32, 64}


@pytest.mark.parametrize(("kind", "architecture"), [("cot", "gpt2"), ("coconut", "llama")])
def test_lanes_that_end_leave_for_a_smaller_shape(kind: str, architecture: str) -> None:
    """Of a text reasoner too, whose lanes end at different tokens."""
    reasoner = (
        make_reasoner(kind, architecture, dtype=torch.float32)
        if kind == "cot"
        else make_counting_reasoner(kind, architecture)
    )
    spec = "token:1.0" if kind == "cot" else "gaussian:2"
    plain = run_rounds(reasoner, spec)
    compile_steps(reasoner, lane_buckets(64), (64,), backend="eager")
    assert_same_tokens(plain, run_rounds(reasoner, spec))
    batch = LaneBatch(
        reasoner,
        make_sampler("gaussian"),
        [
            Ask(ask.prompt, 1, ask.indices, prefix=reasoner.prefill([ask.prompt])[0])
            for ask in asks_of(reasoner, (20, 30))
        ],
        reasoner.format.suffix_capacity,
    )
    assert batch.counts == [32, 32]
    is_finished = [row not in (3, 40) for row in range(64)]
    survivors = batch.drop_finished(is_finished)
    assert survivors is not None
    assert {3, 40} <= set(survivors.tolist())
    assert sum(batch.counts) == len(set(survivors.tolist())) == 32
    assert batch.drop_finished([True] * 31 + [False]) is not None  # one block is left
    assert batch.drop_finished([True] * 15 + [False]) is None


def test_what_is_not_compiled_runs_as_before_to_the_bit() -> None:
    reasoner = make_reasoner("coconut", dtype=torch.float32)
    sampler = make_sampler("gaussian", reasoner.width, torch.float32)
    long = [Ask(reasoner.encode(LONG)[:100], 1, tuple(range(5)))]
    plain = [
        *run_rounds(reasoner, "dropout:0.2"),
        *run_rounds(reasoner, "gaussian", with_probe=True),
        *rollout(reasoner, sampler, long),
    ]
    compile_steps(reasoner, (16, 64), (48,), backend="eager")
    again = [
        *run_rounds(reasoner, "dropout:0.2"),
        *run_rounds(reasoner, "gaussian", with_probe=True),
        *rollout(reasoner, sampler, long),
    ]
    assert [each.trajectories for each in plain] == [each.trajectories for each in again]


def test_numbers_that_overflowed_reach_no_later_pass() -> None:
    reasoner = make_reasoner("coconut", dtype=torch.float32)
    plain = run_rounds(reasoner, "gaussian")
    compile_steps(reasoner, lane_buckets(64), (64,), backend="eager")
    assert reasoner.compiled is not None
    for arena, _ in reasoner.compiled._shapes.values():
        arena.suffix_kv.fill_(float("nan"))
        arena.prompt_kv.fill_(float("nan"))
    assert_same_tokens(plain, run_rounds(reasoner, "gaussian"))


def test_a_compiled_reasoner_promises_tokens_and_not_bits() -> None:
    reasoner = make_reasoner("coconut", dtype=torch.float32)
    assert reasoner.reproducibility.kind == "bits" or reasoner.reproducibility.reason
    compile_steps(reasoner, (16,), (16,), backend="eager")
    assert reasoner.reproducibility.kind == "tokens"
    assert "compiled" in reasoner.reproducibility.reason


def test_int8_is_refused() -> None:
    reasoner = make_reasoner("coconut", dtype=torch.float32, is_int8=True)
    with pytest.raises(InputError, match="int8 is not compiled; use --dtype fp32"):
        compile_steps(reasoner, (16,), (16,), backend="eager")
    assert reasoner.compiled is None


def test_without_a_compiler_one_line_says_what_is_missing(tmp_path: Path) -> None:
    nowhere = {"CXX": str(tmp_path / "no-compiler"), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    command = [Path(sys.executable).parent / "gts", "bench", "--compile", "--model", "coconut-tiny"]
    done = subprocess.run(
        [*command, "--budgets", "1", "--questions", "1", "--threads", "1"],
        env={**os.environ, **nowhere},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("gts: --compile: torch.compile fails on coconut-tiny: ")
    assert "it needs a C++ compiler (g++): install that, or leave --compile out" in done.stderr


@pytest.mark.load
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, of its compiler
@pytest.mark.parametrize("model", ["coconut-tiny", "codi-tiny"])
def test_code_made_for_this_cpu_gives_the_plain_tokens(model: str) -> None:
    reasoner = latent.load(model)
    plain = run_rounds(reasoner, "gts")
    compile_steps(reasoner, (16, 64), (96,))
    with torch.compiler.set_stance("fail_on_recompile"):
        assert_same_tokens(plain, run_rounds(reasoner, "gts"))
