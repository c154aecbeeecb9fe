"""One question to a panel: owns a job for each member, and answers from their lanes together.

The members' jobs are scheduled like any others, each in its own group. This one is not scheduled: it
decides which of their lanes are released, and when they suffice.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from latent.panel import Panel, Place, as_cast, panel_tally
from latent.solved import EndedBy, Solved
from latent.stopping import checkpoints
from latent.trajectory import Timing, Trajectory
from latent.votes import Tally
from service.engine.job import Job

__all__ = ["PanelJob"]


@dataclass(eq=False, kw_only=True)
class PanelJob(Job):
    """A job whose indices are positions in the panel's order, each drawn by a member's job."""

    panel: Panel
    places: tuple[Place, ...]
    members: tuple[Job, ...]
    _stages: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        self._stages = self.panel.stages(self.places)
        for member in self.members:
            member.owner = self

    @property
    def parts(self) -> Sequence[Job]:
        """The members' jobs that have lanes to draw."""
        return [member for member in self.members if member.indices]

    @property
    def done_count(self) -> int:
        """Finished lanes of all members."""
        return sum(member.done_count for member in self.members)

    def drawn(self, index: int) -> Trajectory | None:
        """The finished trajectory at a position of the panel's order."""
        place = self.places[index]
        found = self.members[place.member].drawn(place.index)
        return None if found is None else as_cast(found, index, self.panel.labels[place.member])

    def answer_if_enough(self) -> int:
        """As for one model; before that, add up the prompts that have been read."""
        self.prompt_tokens = sum(member.prompt_tokens for member in self.members)
        return super().answer_if_enough()

    def _next_release(self, first: int) -> int:
        """Release one stage of the split after the other."""
        stage = next(end for end in self._stages if end > first or end == len(self.places))
        return min(super()._next_release(first), stage)

    def _queue(self, first: int, last: int) -> None:
        for place in self.places[first:last]:
            self.members[place.member].pending.append(place.index)

    def _stops(self) -> Iterable[int]:
        return sorted({*self._stages[:-1], *super()._stops()})

    def _is_enough(self, count: int) -> bool:
        voted = self._tally(count)
        if count in self._stages and self.panel.is_sure(voted):
            return True
        if self.stop is None or count not in checkpoints(self.budget):
            return False
        return self.stop.is_reached(voted, None, self.familiarity)

    def _tally(self, count: int) -> Tally:
        return panel_tally(self.panel, self._cast(count), self.vote, self.familiarity)

    def _solved(self, count: int, reason: EndedBy) -> Solved:
        works = tuple(
            member.work(label, [p.index for p in self.places[:count] if p.member == number])
            for number, (label, member) in enumerate(
                zip(self.panel.labels, self.members, strict=True)
            )
        )
        now = time.monotonic()
        return Solved(
            model=self.model,
            sampler=self.sampler,
            seed=self.seed,
            budget=self.budget,
            prompt_tokens=sum(work.prompt_tokens for work in works),
            thoughts=sum(work.thoughts for work in works),
            answer_tokens=sum(work.answer_tokens for work in works),
            trajectories=self._cast(count),
            tally=self._tally(count),
            timing=sum((work.timing for work in works), Timing()),
            queue_seconds=min(work.queue_seconds for work in works if work.trajectories),
            total_seconds=now - self._created,
            ended_by=reason,
            familiarity=self.familiarity,
            abstain_below=self.abstain_below,
            members=works,
        )
