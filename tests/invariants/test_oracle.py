"""The lane engine against the naive oracle: every architecture, kind and sampler."""

import pytest
import torch

from latent.format import PromptFormat
from latent.reasoner import Reasoner
from latent.rollout import Ask, rollout
from tests.oracle import Oracle
from tests.reasoners import CONFIGS, QUESTIONS, make_reasoner, make_spelling_reasoner
from tests.samplers import make_sampler

LATENT_SAMPLERS = (
    "deterministic",
    "dropout:0.3",
    "dropout:0.2@embedding+attention+residual",
    "gaussian:0.7",
    "gts",
)
INDICES = ((0, 1, 2, 3, 4, 5, 6), (-1, 0, 3), (5,), (-1, 0, 1, 2))


def compare(reasoner: Reasoner, spec: str, tolerance: float) -> set[tuple[int, ...]]:
    """Hold all trajectories of four questions, run together, against the oracle's single ones."""
    sampler = make_sampler(spec, reasoner.width, reasoner.dtype)
    asks = [
        Ask(reasoner.encode(question), seed=100 + n, indices=INDICES[n])
        for n, question in enumerate(QUESTIONS)
    ]
    done = rollout(reasoner, sampler, asks, keep_thoughts=True, lane_limit=9)
    oracle, seen = Oracle(reasoner), set()
    for question, ask, result in zip(QUESTIONS, asks, done, strict=True):
        for lane, trajectory in enumerate(result.trajectories):
            expected = oracle.run(question, sampler, ask.seed, trajectory.index)
            assert trajectory.tokens == tuple(expected.tokens)
            assert trajectory.answer_start == expected.answer_start
            assert trajectory.token_logprobs == pytest.approx(expected.logprobs, abs=tolerance)
            if reasoner.format.has_chain:
                assert trajectory.chain_logprob == pytest.approx(expected.chain, abs=tolerance)
            else:
                assert trajectory.chain_logprob is None
            if reasoner.format.thoughts:
                assert result.contexts is not None
                assert result.perturbations is not None
                for got, wanted in (
                    (result.contexts[lane], expected.contexts),
                    (result.perturbations[lane], expected.perturbations),
                ):
                    torch.testing.assert_close(got, torch.stack(wanted), atol=tolerance, rtol=0)
            seen.add(trajectory.tokens)
    return seen


@pytest.mark.parametrize("spec", LATENT_SAMPLERS)
@pytest.mark.parametrize("kind", ["coconut", "codi"])
@pytest.mark.parametrize("architecture", ["gpt2", "llama"])
def test_lanes_match_the_oracle_in_float64(architecture: str, kind: str, spec: str) -> None:
    seen = compare(make_reasoner(kind, architecture), spec, tolerance=1e-8)
    assert len(seen) > (3 if spec == "deterministic" else 6), "one repeated token proves nothing"


@pytest.mark.parametrize("spec", ["dropout:0.3", "gaussian:0.2"])
def test_lanes_that_calculate_match_the_oracle_in_float64(spec: str) -> None:
    plain, calculating = (make_spelling_reasoner(calculator=each) for each in (False, True))
    assert compare(plain, spec, tolerance=1e-8) != compare(calculating, spec, tolerance=1e-8)


@pytest.mark.parametrize("spec", ["deterministic", "dropout:0.3", "gts"])
def test_lanes_match_the_oracle_with_the_fields_of_imported_checkpoints(spec: str) -> None:
    fed = {"after_end_ids": (0, 5), "prompt": PromptFormat(suffix_ids=(0,))}
    oracle = Oracle(make_reasoner("codi", "llama", **fed))
    texts = [oracle.run(q, make_sampler("deterministic"), 0, -1).tokens for q in QUESTIONS]
    first, barred = texts[1][0], texts[0][1]
    assert first != barred
    reasoner = make_reasoner(
        "codi", "llama", eos_ids=(first,), ignore_first_eos=True, suppressed_ids=(barred,), **fed
    )
    seen = compare(reasoner, spec, tolerance=1e-8)
    assert not any(barred in tokens for tokens in seen)
    assert spec != "deterministic" or any(t[0] == first and len(t) > 1 for t in seen)


@pytest.mark.parametrize("spec", ["deterministic", "dropout:0.3", "token:1.3"])
@pytest.mark.parametrize("architecture", ["gpt2", "llama"])
def test_text_lanes_match_the_oracle_in_float64(architecture: str, spec: str) -> None:
    # A prefix of one frequent token, so that lanes do leave their reasoning, at different steps.
    reasoner = make_reasoner("cot", architecture)
    common = Oracle(reasoner).run(QUESTIONS[0], make_sampler("deterministic"), 0, -1).tokens[2]
    reasoner = make_reasoner("cot", architecture, answer_prefix_ids=(common,))
    assert len(compare(reasoner, spec, tolerance=1e-8)) > 3


@pytest.mark.parametrize("kind", ["coconut", "codi"])
@pytest.mark.parametrize("architecture", ["gpt2", "llama"])
def test_lanes_match_the_oracle_in_float32_at_a_small_initialisation(
    architecture: str, kind: str
) -> None:
    config = CONFIGS[architecture]()
    config.initializer_range = 0.02
    reasoner = make_reasoner(kind, architecture, config=config, dtype=torch.float32)
    compare(reasoner, "gaussian:0.1", tolerance=1e-4)
