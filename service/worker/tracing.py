"""Shows the thoughts of one question: runs its trajectories again, keeping what they passed through."""

from collections.abc import Mapping, Sequence
from typing import Any

from latent.inspection import find_paths, read_thoughts
from latent.reasoner import Reasoner
from latent.rollout import Ask, Rollout, rollout
from latent.samplers import Sampler
from service.engine.messages import View

__all__ = ["trace"]

_TOKENS = 4  # of each thought
_DIGITS = 4  # after the point: more cannot be drawn


def trace(
    reasoner: Reasoner, sampler: Sampler, ask: Ask, views: Sequence[View], lane_limit: int
) -> tuple[Rollout, Mapping[str, Any]]:
    """Run an ask whose first index is the deterministic one; return the rollout and the views of it."""
    done = rollout(
        reasoner, sampler, [ask], keep_thoughts=True, keep_states=True, lane_limit=lane_limit
    )[0]
    found: dict[str, Any] = {}
    if "paths" in views:
        found["paths"] = _paths(done)
    if "readings" in views:
        found["readings"] = _readings(reasoner, done)
    return done, found


def _paths(done: Rollout) -> dict[str, Any]:
    assert done.contexts is not None
    assert done.perturbations is not None
    paths = find_paths(done.contexts + done.perturbations)
    return {
        "explained": paths.explained,
        "median": _rounded(paths.median.tolist()),
        "trajectories": [
            {
                "index": trajectory.index,
                "text": trajectory.text,
                "answer": trajectory.answer,
                "logprob": trajectory.logprob,
                "confidence": trajectory.confidence,
                "chain_logprob": trajectory.chain_logprob,
                "points": _rounded(points),
            }
            for trajectory, points in zip(done.trajectories, paths.points.tolist(), strict=True)
        ],
    }


def _readings(reasoner: Reasoner, done: Rollout) -> list[dict[str, Any]]:
    assert done.states is not None
    read = read_thoughts(reasoner, done.states, _TOKENS)
    return [
        {
            "index": trajectory.index,
            "thoughts": [
                [
                    {"token": each.token, "probability": round(each.probability, _DIGITS)}
                    for each in tokens
                ]
                for tokens in thoughts
            ],
        }
        for trajectory, thoughts in zip(done.trajectories, read, strict=True)
    ]


def _rounded(points: list[list[float]]) -> list[list[float]]:
    return [[round(x, _DIGITS), round(y, _DIGITS)] for x, y in points]
