"""Answer one question on a budget: the rollout, then the vote. What the command line and reports use."""

from dataclasses import dataclass

from latent.errors import InputError
from latent.reasoner import Reasoner
from latent.rollout import Ask, Rollout, rollout
from latent.samplers import Sampler
from latent.trajectory import budget_indices
from latent.votes import Ballot, Tally, VoteKind, tally

__all__ = ["Solution", "ballots_of", "solve"]


@dataclass(frozen=True)
class Solution:
    """A question's trajectories and what they voted."""

    rollout: Rollout
    tally: Tally
    seed: int
    budget: int


def solve(
    reasoner: Reasoner,
    question: str,
    sampler: Sampler,
    *,
    budget: int,
    seed: int,
    vote: VoteKind = "majority",
    include_deterministic: bool = False,
) -> Solution:
    """Draw `budget` trajectories of a question and let them vote; the deterministic sampler has one."""
    spent = sampler.spec.spent(budget)
    indices = budget_indices(spent, include_deterministic=include_deterministic)
    if vote == "centroid" and not reasoner.format.is_latent:
        raise InputError(
            f"vote 'centroid' needs thoughts, and {reasoner.name} reasons in text; use majority, "
            "confidence or best",
            param="vote",
        )
    done = rollout(reasoner, sampler, [Ask(reasoner.encode(question), seed, indices)])[0]
    return Solution(done, tally(ballots_of(done), vote), seed, budget)


def ballots_of(done: Rollout) -> list[Ballot]:
    """Give what a rollout's trajectories bring to the vote."""
    finals = done.final_thoughts
    thoughts = None if finals is None else finals.double().cpu().numpy()
    return [
        Ballot(t.index, t.answer, t.confidence, None if thoughts is None else thoughts[n])
        for n, t in enumerate(done.trajectories)
    ]
