"""Processor time that a panel takes for its questions: one after the other, or many in a batch.

A busy server runs the lanes of many questions together, so there every trajectory that is not drawn
saves time. One question alone takes about as long with one lane as with 16.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from latent.lanes import Prefix
from latent.panel import SPLITS, Place, Split
from latent.reasoner_panel import ReasonerPanel
from latent.rollout import Ask, rollout
from trainer.runs.progress import Progress

__all__ = ["Batch", "Times", "times_alone", "times_together"]

_BATCH = 100  # questions
_MAX_SECONDS = 60.0  # for the questions that are asked alone

# Processor seconds of a question under each split, of several their mean.
Times = dict[Split, float]


@dataclass
class Batch:
    """Questions that are drawn together, with their seeds; their prompts are read once."""

    loaded: ReasonerPanel
    questions: Sequence[str]
    seeds: Sequence[int]
    lanes: int  # in one pass
    _prefixes: dict[tuple[int, int], Prefix] = field(default_factory=dict)

    def draw(self, places: Sequence[Place], among: Sequence[int] | None = None) -> float:
        """Draw these places of all questions, or of those numbered; return the seconds it took."""
        numbers = range(len(self.questions)) if among is None else among
        started = time.process_time()
        for member, reasoner in enumerate(self.loaded.reasoners):
            indices = tuple(place.index for place in places if place.member == member)
            if not indices or not numbers:
                continue
            asks = [
                Ask(
                    reasoner.encode(self.questions[number]),
                    self.seeds[number],
                    indices,
                    prefix=self._prefixes.get((member, number)),
                )
                for number in numbers
            ]
            done = rollout(reasoner, self.loaded.samplers[member], asks, lane_limit=self.lanes)
            for number, result in zip(numbers, done, strict=True):
                self._prefixes[member, number] = result.prefix
        return time.process_time() - started


def times_alone(
    loaded: ReasonerPanel,
    questions: Sequence[str],
    seeds: Sequence[int],
    budget: int,
    progress: Progress,
) -> list[Times]:
    """Times of each question by itself, under all splits in turn: all meet the same load.

    Of as many questions as take about a minute, if all would take longer.
    """
    splits = {
        split: ReasonerPanel(replace(loaded.panel, split=split), loaded.reasoners)
        for split in SPLITS
    }
    found: list[Times] = []
    begun = time.monotonic()
    for question, seed in zip(questions, seeds, strict=True):
        if found and time.monotonic() - begun > _MAX_SECONDS:
            break
        seconds: Times = {}
        for split, panel in splits.items():
            started = time.process_time()
            panel.solve(question, budget=budget, seed=seed)
            seconds[split] = time.process_time() - started
        found.append(seconds)
        progress.show(len(found), {"questions": "alone"})
    return found


def times_together(
    loaded: ReasonerPanel,
    questions: Sequence[str],
    seeds: Sequence[int],
    taken: Mapping[Split, Sequence[int]],
    budget: int,
    lanes: int,
    progress: Progress,
) -> list[Times]:
    """Times of batches of questions under all splits in turn; `taken`: a split's places of each."""
    found: list[Times] = []
    for first in range(0, len(questions), _BATCH):
        own = slice(first, first + _BATCH)
        seconds: Times = {}
        for split in SPLITS:
            panel = replace(loaded.panel, split=split)
            batch = Batch(loaded, questions[own], seeds[own], lanes)
            places, counts = panel.places(budget), taken[split][own]
            seconds[split], begin = 0.0, 0
            for end in panel.stages(places):
                among = [number for number, count in enumerate(counts) if count >= end]
                seconds[split] += batch.draw(places[begin:end], among) / len(counts)
                begin = end
        found.append(seconds)
        progress.show(len(questions) + first + len(counts), {"questions": "together"})
    return found
