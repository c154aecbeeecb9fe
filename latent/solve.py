"""Solves one question in this process: rollouts up to each checkpoint, then the vote."""

import secrets
import time
from dataclasses import replace

from latent.reasoner import Reasoner
from latent.rollout import Ask, rollout
from latent.samplers import Sampler
from latent.solved import EndedBy, Solved
from latent.stopping import Stop, check_stop, checkpoints
from latent.trajectory import Timing, Trajectory, budget_indices
from latent.votes import parse_vote, tally

__all__ = ["solve"]


def solve(
    reasoner: Reasoner,
    question: str,
    sampler: str | Sampler | None = None,
    *,
    budget: int = 8,
    seed: int | None = None,
    vote: str | None = None,
    include_deterministic: bool = False,
    stop: Stop | None = None,
    abstain_below: float | None = None,
) -> Solved:
    """Draw `budget` trajectories of a question and let them vote; see `Reasoner.solve`."""
    kind = reasoner.format.vote_or_default(
        None if vote is None else parse_vote(vote),
        counts_votes=stop is not None and stop.kind == "certainty",
    )
    verifier = reasoner.verifier_for(kind)
    used = sampler if isinstance(sampler, Sampler) else reasoner.sampler(sampler)
    effective = used.spec.effective_budget(budget)
    indices = budget_indices(effective, include_deterministic=include_deterministic)
    seed = secrets.randbelow(2**32) if seed is None else seed
    calibration = reasoner.calibrations.find(used.spec, kind)
    what = f"{reasoner.name} with sampler {used.spec}"
    check_stop(what, kind, stop, abstain_below, is_calibrated=calibration is not None)
    familiarity = reasoner.calibrations.familiarity(question)
    started = time.perf_counter()
    ask = Ask(reasoner.encode(question), seed, indices)
    drawn: list[Trajectory] = []
    timing = Timing()
    ended_by: EndedBy = "budget"
    ends = list(checkpoints(len(indices))) if stop else []
    for end in (*ends, len(indices)):
        part = replace(ask, indices=indices[len(drawn) : end])
        done = rollout(reasoner, used, [part], verifier=verifier)[0]
        ask = replace(ask, prefix=done.prefix)
        drawn += done.trajectories
        timing += done.timing
        voted = tally(drawn, kind)
        if end < len(indices) and stop and stop.is_reached(voted, calibration, familiarity):
            ended_by = stop.kind
            break
    return Solved(
        model=reasoner.name,
        sampler=str(used.spec),
        seed=seed,
        budget=budget,
        prompt_tokens=done.prefix.length,
        thoughts=reasoner.format.thoughts * len(drawn),
        answer_tokens=sum(len(each.tokens) for each in drawn),
        trajectories=tuple(drawn),
        tally=voted,
        timing=timing,
        total_seconds=time.perf_counter() - started,
        ended_by=ended_by,
        calibration=calibration,
        familiarity=familiarity,
        abstain_below=abstain_below,
    )
