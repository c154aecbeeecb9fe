"""The probe against a teacher-forced pass of the oracle, for latent and text reasoners."""

from decimal import Decimal

import pytest
import torch

from latent.exploration import explore
from latent.rollout import Ask, rollout
from tests.oracle import Oracle
from tests.reasoners import QUESTIONS, make_reasoner
from tests.samplers import make_sampler

TARGETS = ((5, 9, 0), (17, 0))


@pytest.mark.parametrize(
    ("kind", "spec"),
    [("coconut", "gaussian:0.7"), ("codi", "gts"), ("codi", "dropout:0.3"), ("cot", "token:1.2")],
)
@pytest.mark.parametrize("architecture", ["gpt2", "llama"])
def test_the_probe_is_the_oracles_forced_pass(architecture: str, kind: str, spec: str) -> None:
    changes = {}
    if kind == "cot":  # a prefix that does come up, so that reasoning ends at different steps
        plain = make_reasoner("cot", architecture)
        tokens = Oracle(plain).run(QUESTIONS[0], make_sampler("deterministic"), 0, -1).tokens
        changes = {"answer_prefix_ids": (tokens[2],)}
    reasoner = make_reasoner(kind, architecture, **changes)
    sampler, oracle = make_sampler(spec), Oracle(reasoner)
    asks = [
        Ask(reasoner.encode(question), 3, (-1, 0, 1, 2), target=target)
        for question, target in zip(QUESTIONS, TARGETS, strict=False)
    ]
    done = rollout(reasoner, sampler, asks, with_probe=True)
    for question, target, result in zip(QUESTIONS, TARGETS, done, strict=False):
        assert result.probe is not None
        assert result.probe.target_logprobs is not None
        for lane, trajectory in enumerate(result.trajectories):
            first, along = oracle.probe(question, sampler, 3, trajectory.index, target)
            torch.testing.assert_close(result.probe.first_logprobs[lane], first, atol=1e-8, rtol=0)
            torch.testing.assert_close(result.probe.target_logprobs[lane], along, atol=1e-8, rtol=0)


def test_a_space_that_every_number_begins_with_is_not_measured() -> None:
    whole = make_reasoner("coconut", "gpt2")
    marks, space = whole.format.answer_prefix_ids
    assert whole.encoder.answer_lead_ids == ()
    shorter = make_reasoner("coconut", "gpt2", answer_prefix_ids=(marks,))
    assert shorter.encoder.answer_lead_ids == (space,)
    sampler, results = make_sampler("gaussian:0.7"), []
    for reasoner in (whole, shorter):
        target = reasoner.encode_answer(Decimal(37))
        ask = Ask(reasoner.encode(QUESTIONS[0]), 3, (-1, 0, 1), target=target)
        (done,) = rollout(reasoner, sampler, [ask], with_probe=True, lane_limit=2)
        assert done.probe is not None
        results.append((done.probe.first_logprobs, explore(done.probe)))
    (first, expected), (other, found) = results
    torch.testing.assert_close(other, first, atol=1e-8, rtol=0)
    assert found.gain == pytest.approx(expected.gain, abs=1e-6)
    assert found.js == pytest.approx(expected.js, abs=1e-8)
