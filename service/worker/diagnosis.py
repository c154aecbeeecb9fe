"""Measures how one sampler explores one question: SG, JS, regime and votes of a probed rollout."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from latent import quality
from latent.answers import same_answer, show_answer
from latent.exploration import explore, heads_of
from latent.reasoner import Reasoner
from latent.regimes import regime
from latent.rollout import Ask, Rollout, rollout
from latent.samplers import LearnedSampler, Sampler
from latent.trajectory import DETERMINISTIC, Trajectory
from latent.votes import tally

__all__ = ["diagnose"]


def diagnose(
    reasoner: Reasoner, sampler: Sampler, ask: Ask, truth: Decimal | None, lane_limit: int
) -> tuple[Rollout, Mapping[str, Any]]:
    """Run an ask whose first index is the deterministic one; return the rollout and the measures."""
    keeps = isinstance(sampler, LearnedSampler)
    done = rollout(
        reasoner, sampler, [ask], with_probe=True, keep_thoughts=keeps, lane_limit=lane_limit
    )[0]
    assert done.probe is not None
    assert ask.indices[0] == DETERMINISTIC
    trajectories = done.trajectories
    contexts = None if done.contexts is None else done.contexts[1:]
    explored = explore(done.probe, heads_of(sampler, contexts, ask.indices[1:]))
    assert explored.js is not None
    return done, {
        "deterministic_answer": show_answer(trajectories[0].answer),
        "sampling_gain": explored.gain,
        "sampling_gain_whole_answer": explored.gain_whole,
        "gain_share": explored.gain_share,
        "js_divergence": explored.js,
        "unique_answers": quality.unique_answers(
            [trajectory.answer for trajectory in trajectories[1:]]
        ),
        "regime": regime(explored.gain, explored.js, reasoner.regime_thresholds),
        "gains": explored.gains,
        "vote_curve": _vote_curve(trajectories, truth),
        "snr": explored.snr,
        "sigma": explored.sigma,
    }


def _vote_curve(trajectories: Sequence[Trajectory], truth: Decimal | None) -> list[dict[str, Any]]:
    """Pass and majority at 1, 2, 4 … and N; a budget of 1 is the deterministic trajectory."""
    curve, total = [], len(trajectories) - 1
    powers = [2**k for k in range(total.bit_length()) if 2**k < total]
    for budget in (*powers, total):
        cast = trajectories[:1] if budget == 1 else trajectories[1 : budget + 1]
        winner = tally(cast).winner
        is_right = [same_answer(trajectory.answer, truth) for trajectory in cast]
        curve.append(
            {
                "budget": budget,
                "answer": show_answer(winner.answer),
                "share": winner.share,
                "passes": None if truth is None else any(is_right),
                "majority_correct": None if truth is None else same_answer(winner.answer, truth),
            }
        )
    return curve
