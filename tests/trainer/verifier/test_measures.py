"""Votes, their paired difference and AUC on trajectories that are made by hand."""

from dataclasses import replace

import pytest
import torch

from latent.verifier import LaneStates
from tests.trajectories import trajectory
from trainer.verifier.examples import Labelled
from trainer.verifier.measures import auc, budgets_of, measure

NOTHING = LaneStates(torch.zeros(0), torch.zeros(0))


def labelled(*cast: tuple[int, float], truth: int) -> Labelled:
    """Trajectories by answer and score."""
    own = tuple(
        replace(trajectory(n, answer), score=score) for n, (answer, score) in enumerate(cast)
    )
    return Labelled(own, tuple(each.answer == truth for each in own), NOTHING)


def test_the_auc_is_the_share_of_pairs_in_order_and_ties_count_half() -> None:
    assert auc([0.1, 0.4, 0.4, 0.9], [False, False, True, True]) == pytest.approx(3.5 / 4)
    assert auc([1.0, 2.0], [True, False]) == 0.0
    assert auc([1.0, 2.0], [True, True]) is None


def test_votes_are_counted_at_every_budget_and_paired_with_the_majority() -> None:
    saved = labelled((5, 0.1), (5, 0.1), (5, 0.1), (7, 1.0), truth=7)  # by the verifier
    lost = labelled((5, 0.1), (5, 0.1), (5, 0.1), (7, 1.0), truth=5)
    same = labelled((5, 1.0), (5, 1.0), (5, 1.0), (5, 1.0), truth=5)
    found = measure([saved, same, same, same], seed=0)
    assert found["questions"] == 4
    assert found["majority"]["4"]["value"] == 0.75
    assert found["verifier"]["4"]["value"] == 1.0
    assert found["pass"]["4"]["value"] == 1.0
    assert found["against_majority"]["4"]["value"] == 0.25
    assert found["auc_within_question"] == 1.0
    assert measure([lost, same], seed=0)["against_majority"]["4"]["value"] == -0.5


def test_budgets_are_those_that_the_trajectories_allow() -> None:
    assert budgets_of(16) == (4, 8, 16)
    assert budgets_of(64) == (4, 8, 16, 32)
