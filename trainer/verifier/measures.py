"""Measures a verifier on validation questions: its vote beside others, paired by question, and AUC."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from latent.quality import pass_at
from latent.votes import VoteKind, tally
from trainer.evaluation.statistics import Floats, intervals
from trainer.verifier.examples import Labelled

__all__ = ["auc", "budgets_of", "measure"]

_BUDGETS = (4, 8, 16, 32)
_VOTES: tuple[VoteKind, ...] = ("majority", "confidence", "verifier")


def budgets_of(lanes: int) -> tuple[int, ...]:
    """The budgets that are measured with that many trajectories of a question."""
    return tuple(budget for budget in _BUDGETS if budget <= lanes)


def measure(drawn: Sequence[Labelled], seed: int) -> dict[str, Any]:
    """Accuracy of the votes and pass@N at each budget, with intervals; AUC of the scores.

    `against_majority` is the verifier's accuracy minus the majority's, paired by question. The AUC
    within a question is the mean over questions that have right and wrong trajectories.
    """
    budgets = budgets_of(len(drawn[0].trajectories))
    columns: dict[tuple[str, int], Floats] = {}
    for budget in budgets:
        for kind in _VOTES:
            right = [_is_vote_right(one, kind, budget) for one in drawn]
            columns[kind, budget] = np.array(right, dtype=np.float64)
        columns["against_majority", budget] = (
            columns["verifier", budget] - columns["majority", budget]
        )
        columns["pass", budget] = np.array(
            [pass_at(len(one.is_right), sum(one.is_right), budget) for one in drawn]
        )
    found = intervals(np.stack(list(columns.values()), axis=1), seed)
    measured = {key: asdict(each) for key, each in zip(columns, found, strict=True)}
    names = dict.fromkeys(name for name, _ in columns)
    within = [auc(_scores(one), one.is_right) or 0.0 for one in drawn if one.is_mixed]
    return {
        "questions": len(drawn),
        **{name: {str(n): measured[name, n] for n in budgets} for name in names},
        "auc": _rounded(
            auc([s for one in drawn for s in _scores(one)], [y for o in drawn for y in o.is_right])
        ),
        "auc_within_question": _rounded(float(np.mean(within)) if within else None),
    }


def auc(scores: Sequence[float], is_right: Sequence[bool]) -> float | None:
    """Probability that a right trajectory scores above a wrong one, ties counting ½."""
    values, labels = np.array(scores), np.array(is_right, dtype=bool)
    right, wrong = int(labels.sum()), int((~labels).sum())
    if not right or not wrong:
        return None
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (counts.cumsum() - (counts - 1) / 2)[places]  # from 1; the mean rank of equal scores
    return float((ranks[labels].sum() - right * (right + 1) / 2) / (right * wrong))


def _is_vote_right(one: Labelled, kind: VoteKind, budget: int) -> bool:
    winner = tally(one.trajectories[:budget], kind).winner
    return any(one.is_right[index] for index in winner.trajectories)


def _scores(one: Labelled) -> list[float]:
    return [each.score for each in one.trajectories if each.score is not None]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)
