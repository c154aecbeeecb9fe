"""How one sampler explores one question: the paper's measures on a probed rollout. Worker side."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import torch

from latent import quality
from latent.answers import same_answer, show_answer
from latent.reasoner import Reasoner
from latent.rollout import Ask, rollout
from latent.samplers import LearnedSampler, Sampler
from latent.solve import ballots_of
from latent.trajectory import DETERMINISTIC
from latent.votes import Ballot, tally

__all__ = ["diagnose"]


def diagnose(
    reasoner: Reasoner, sampler: Sampler, ask: Ask, truth: Decimal | None, lane_limit: int
) -> tuple[Any, Mapping[str, Any]]:
    """Run an ask whose first index is the deterministic one; give the rollout and the measures."""
    keeps = isinstance(sampler, LearnedSampler)
    done = rollout(
        reasoner, sampler, [ask], with_probe=True, keep_thoughts=keeps, lane_limit=lane_limit
    )[0]
    assert done.probe is not None
    assert ask.indices[0] == DETERMINISTIC
    ballots = ballots_of(done)
    first = done.probe.first_logprobs
    shift = quality.js_divergence(first[1:], first[0])
    gains = whole_gain = None
    logprobs, complements = done.probe.target_logprobs, done.probe.target_complements
    if ask.target is not None and logprobs is not None and complements is not None:
        odds = quality.log_odds(first, ask.target[0])
        gains = (odds[1:] - odds[0]).tolist()
        whole = quality.answer_log_odds(logprobs, complements)
        whole_gain = float(quality.sampling_gain(whole[1:], whole[0]))
    js = float(shift.mean()) if len(shift) else 0.0
    gain = max(gains) if gains else None
    return done, {
        "deterministic_answer": show_answer(ballots[0].answer),
        "sampling_gain": gain,
        "sampling_gain_whole_answer": whole_gain,
        "gain_share": quality.gain_rate(torch.tensor(gains)) if gains else None,
        "js_divergence": js,
        "unique_answers": quality.unique_answers([ballot.answer for ballot in ballots[1:]]),
        "regime": quality.regime(gain, js),
        "gains": gains,
        "vote_curve": _vote_curve(ballots, truth),
        **_heads(sampler, done.contexts),
    }


def _vote_curve(ballots: list[Ballot], truth: Decimal | None) -> list[dict[str, Any]]:
    """Give pass and majority at 1, 2, 4 … and N; a budget of 1 is the deterministic trajectory."""
    curve, total = [], len(ballots) - 1
    powers = [2**k for k in range(total.bit_length()) if 2**k < total]
    for budget in (*powers, total):
        cast = ballots[:1] if budget == 1 else ballots[1 : budget + 1]
        winner = tally(cast).winner
        is_right = [same_answer(ballot.answer, truth) for ballot in cast]
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


def _heads(sampler: Sampler, contexts: torch.Tensor | None) -> dict[str, Any]:
    """Give SNR and σ per thought of a learned sampler."""
    if not isinstance(sampler, LearnedSampler) or contexts is None:
        return {"snr": None, "sigma": None}
    mean, log_std = sampler.heads(contexts[1:].to(next(sampler.heads.parameters()).dtype))
    std = log_std.exp()  # (N, K, D)
    return {
        "snr": quality.signal_to_noise(mean, std).tolist(),
        "sigma": std.square().mean(-1).sqrt().mean(0).tolist(),
    }
