"""Solves one question in this process: the rollout, then the vote."""

import secrets
import time

from latent.reasoner import Reasoner
from latent.rollout import Ask, rollout
from latent.samplers import Sampler
from latent.solved import Solved
from latent.trajectory import budget_indices
from latent.votes import parse_vote, tally

__all__ = ["solve"]


def solve(
    reasoner: Reasoner,
    question: str,
    sampler: str | Sampler | None = None,
    *,
    budget: int = 8,
    seed: int | None = None,
    vote: str = "majority",
    include_deterministic: bool = False,
) -> Solved:
    """Draw `budget` trajectories of a question and let them vote; see `Reasoner.solve`."""
    kind = parse_vote(vote)
    reasoner.format.check_vote(kind, reasoner.name)
    used = sampler if isinstance(sampler, Sampler) else reasoner.sampler(sampler)
    effective = used.spec.effective_budget(budget)
    indices = budget_indices(effective, include_deterministic=include_deterministic)
    seed = secrets.randbelow(2**32) if seed is None else seed
    calibration = reasoner.calibrations.find(used.spec, kind)
    started = time.perf_counter()
    done = rollout(reasoner, used, [Ask(reasoner.encode(question), seed, indices)])[0]
    return Solved(
        model=reasoner.name,
        sampler=str(used.spec),
        seed=seed,
        budget=budget,
        prompt_tokens=done.prefix.length,
        thoughts=reasoner.format.thoughts * len(indices),
        answer_tokens=sum(len(each.tokens) for each in done.trajectories),
        trajectories=done.trajectories,
        tally=tally(done.trajectories, kind),
        timing=done.timing,
        total_seconds=time.perf_counter() - started,
        calibration=calibration,
    )
