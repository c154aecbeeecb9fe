"""Chooses the scales of gts@auto on validation questions, and writes them into the sampler's card.

    python -m trainer.evaluation.scales --model coconut-tiny --data embedded:validation --limit 600

Every trajectory is drawn at every scale. Its noise depends on nothing but its seed and index, so these
tell what any schedule of scales would answer, at every budget.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from latent.answers import parse_answer, same_answer
from latent.errors import GtsError, InputError
from latent.files import write_json
from latent.folders import read_sampler_card
from latent.noise import derive_seed
from latent.reasoner import Reasoner
from latent.rollout import Ask, rollout
from latent.samplers import scale_at
from latent.specs import SamplerSpec
from latent.store import load_reasoner
from latent.trajectory import Trajectory
from latent.votes import tally
from latent.zoo import DEFAULT_LATENT_MODEL, resolve_model, resolve_sampler
from trainer.data.rows import Row
from trainer.data.sources import load_rows
from trainer.runs.progress import Progress

__all__ = ["Drawn", "Share", "choose_schedule", "draw", "main", "measure"]

STARTS = (0, 2, 4, 8, 16)  # indices at which a schedule may take another scale
LANES = 32
_SCALES = "1,0.75,0.5,0.25"
_BATCH = 16  # questions of a rollout


@dataclass(frozen=True)
class Drawn:
    """The trajectories of a question at each scale, and its true answer."""

    truth: Decimal | None
    trajectories: Mapping[float, Sequence[Trajectory]]

    def scheduled(self, schedule: Mapping[int, float], budget: int) -> list[Trajectory]:
        """The first trajectories, each at the scale that the schedule has for its index."""
        return [self.trajectories[scale_at(schedule, index)][index] for index in range(budget)]


@dataclass(frozen=True)
class Share:
    """Share of the questions whose majority is right, and of those with any right trajectory."""

    majority: float
    passed: float


def measure(drawn: Sequence[Drawn], schedule: Mapping[int, float], budget: int) -> Share:
    """majority@N and pass@N of the first `budget` trajectories."""
    majority = passed = 0
    for one in drawn:
        trajectories = one.scheduled(schedule, budget)
        majority += same_answer(tally(trajectories).winner.answer, one.truth)
        passed += any(same_answer(each.answer, one.truth) for each in trajectories)
    return Share(majority / len(drawn), passed / len(drawn))


def choose_schedule(
    drawn: Sequence[Drawn], starts: Sequence[int] = STARTS, lanes: int = LANES
) -> dict[int, float]:
    """Choose a scale for the indices from each start on, one start after the other.

    The chosen one has the highest sum of majority@N and pass@N at the budget at which the next
    begins: the vote wants little noise, and finding a right answer much. Equal ones: the larger.
    """
    scales = sorted(drawn[0].trajectories, reverse=True)
    schedule: dict[int, float] = {}
    for start, end in zip(starts, (*starts[1:], lanes), strict=True):

        def value(scale: float, start: int = start, end: int = end) -> float:
            found = measure(drawn, {**schedule, start: scale}, end)
            return found.majority + found.passed

        schedule[start] = max(scales, key=value)
    # A scale that goes on needs no entry of its own.
    return {
        start: scale
        for place, (start, scale) in enumerate(schedule.items())
        if place == 0 or scale != list(schedule.values())[place - 1]
    }


def draw(
    reasoner: Reasoner, spec: SamplerSpec, scales: Sequence[float], rows: Sequence[Row], lanes: int
) -> list[Drawn]:
    """Draw the first `lanes` trajectories of each question at each scale."""
    found: list[Drawn] = []
    samplers = {
        scale: reasoner.sampler(str(replace(spec, value=None if scale == 1 else scale)))
        for scale in scales
    }
    with Progress(len(rows), 0, "drawing", line_seconds=10) as progress:
        for first in range(0, len(rows), _BATCH):
            part = rows[first : first + _BATCH]
            asks = [
                Ask(reasoner.encode(row.question), derive_seed(0, "scales", n), tuple(range(lanes)))
                for n, row in enumerate(part, start=first)
            ]
            done = {scale: rollout(reasoner, one, asks) for scale, one in samplers.items()}
            found += [
                Drawn(
                    parse_answer(row.answer),
                    {scale: each[n].trajectories for scale, each in done.items()},
                )
                for n, row in enumerate(part)
            ]
            progress.show(len(found), {"questions": f"{len(found)}/{len(rows)}"})
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw, choose, print what is gained, and write the scales into the card."""
    name = "python -m trainer.evaluation.scales"
    parser = argparse.ArgumentParser(prog=name, description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", default=DEFAULT_LATENT_MODEL, help="embedded name or folder")
    parser.add_argument("--sampler", default="gts", help="a learned sampler of the model")
    parser.add_argument("--data", default="embedded:validation", help="where questions come from")
    parser.add_argument("--limit", type=int, default=600, help="questions to draw")
    parser.add_argument("--scales", default=_SCALES, help="scales of σ to choose from")
    options = parser.parse_args(arguments)
    try:
        folder, spec = resolve_model(options.model), SamplerSpec.parse(options.sampler)
        own = resolve_sampler(folder, spec)
        if own is None:
            raise InputError(f"{options.sampler} is not a learned sampler, as gts is")
        scales = _parse_scales(options.scales)
        reasoner = load_reasoner(folder, dtype="auto")
        rows = load_rows(options.data, options.limit)
        drawn = draw(reasoner, spec, scales, rows, LANES)
        schedule = choose_schedule(drawn)
        card = replace(
            read_sampler_card(own), scales={str(start): each for start, each in schedule.items()}
        )
        write_json(own / "sampler.json", {"format": 1, **vars(card)})
    except GtsError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    print(f"{len(drawn)} questions; majority@N / pass@N in %")
    for label, each in {**{f"{s:g}": {0: s} for s in scales}, "auto": schedule}.items():
        shares = [measure(drawn, each, end) for end in (*STARTS[1:], LANES)]
        print(
            f"{label:>5}  "
            + "  ".join(f"{s.majority * 100:.1f} / {s.passed * 100:.1f}" for s in shares)
        )
    print(f"scales by trajectory index: {json.dumps(schedule)}")
    return 0


def _parse_scales(text: str) -> list[float]:
    try:
        scales = sorted({float(word) for word in text.split(",")}, reverse=True)
    except ValueError:
        scales = []
    if len(scales) < 2 or not all(0 < scale <= 10 for scale in scales):
        raise InputError(f"scales {text!r} must be two or more numbers above 0, as in {_SCALES}")
    return scales


if __name__ == "__main__":
    sys.exit(main())
