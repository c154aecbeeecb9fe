"""Chooses `sure` of a panel on validation questions: what a level saves in time and loses in accuracy.

    python -m trainer.evaluation.sure --model panel-tiny --limit 1000 --write

The questions are others than those of `gts calibrate`, so that the probabilities are as they are for
questions that the panel has not seen.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

import numpy as np

import latent
from latent.answers import same_answer
from latent.errors import GtsError, NotFoundError
from latent.files import read_json, write_json
from latent.noise import derive_seed
from latent.panel import Panel, as_cast, panel_tally
from latent.reasoner_panel import ReasonerPanel
from latent.zoo import find_panel
from trainer.data.rows import Row
from trainer.data.sources import load_rows
from trainer.evaluation.panel_calibration import Drawn, draw_places
from trainer.evaluation.panel_times import Batch
from trainer.evaluation.statistics import Floats, Interval, intervals
from trainer.runs.progress import Progress

__all__ = ["Level", "Stages", "choose", "main", "measure", "stages_of"]

LEVELS = (0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.98)
_DATA_SEED = 3  # after those of backbones, samplers and calibrations
_TIMED = 100  # questions on which the time is measured, in a batch
_LANES = 512  # of a pass


@dataclass(frozen=True)
class Stages:
    """What the panel says after each stage of its split; the last one is the fixed split."""

    probabilities: Floats  # (questions, stages) that the answer is right; −1 if none can be read
    is_right: Floats  # (questions, stages)
    seconds: Floats  # (stages,) of the processor, that a question takes in each stage
    fixed_seconds: float  # that it takes under the fixed split


@dataclass(frozen=True)
class Level:
    """A split that ends at the probability `sure`."""

    sure: float
    accuracy: float
    difference: Interval  # to the fixed split, paired by question
    time: float  # as a share of the fixed split's
    asked: tuple[float, ...]  # share of the questions that each stage is drawn for


def measure(stages: Stages, sure: float, seed: int = 0) -> Level:
    """Accuracy and time with this level."""
    is_enough = stages.probabilities >= sure
    is_enough[:, -1] = True
    last = is_enough.argmax(1)  # the first stage that suffices, for each question
    right = stages.is_right[np.arange(len(last)), last]
    asked = (np.arange(is_enough.shape[1]) <= last[:, None]).mean(0)  # (stages,)
    return Level(
        sure,
        float(right.mean()),
        intervals((right - stages.is_right[:, -1])[:, None], seed)[0],
        float(asked @ stages.seconds / stages.fixed_seconds),
        tuple(asked.tolist()),
    )


def choose(levels: Sequence[Level], loss: float) -> Level:
    """The lowest level that loses at most `loss` of the fixed split's accuracy, else the highest."""
    ordered = sorted(levels, key=lambda level: level.sure)
    enough = (level for level in ordered if level.difference.value >= -loss)
    return next(enough, ordered[-1])


def stages_of(panel: Panel, rows: Sequence[Row], drawn: Sequence[Drawn], budget: int) -> Stages:
    """Vote after each stage of the panel's split, as `ReasonerPanel.solve` does; without times."""
    places = panel.places(budget)
    ends = panel.stages(places)
    said, right = np.zeros((len(rows), len(ends))), np.zeros((len(rows), len(ends)))
    for number, (row, own) in enumerate(zip(rows, drawn, strict=True)):
        familiarity, truth = panel.familiarity(row.question), Decimal(row.answer)
        cast = [
            as_cast(own[place], position, panel.labels[place.member])
            for position, place in enumerate(places)
        ]
        for stage, end in enumerate(ends):
            voted = panel_tally(panel, cast[:end], "majority", familiarity)
            answer = voted.winner.answer
            said[number, stage] = -1.0 if answer is None else voted.probability
            right[number, stage] = same_answer(answer, truth)
    return Stages(said, right, np.zeros(len(ends)), 1.0)


def _timed(stages: Stages, loaded: ReasonerPanel, rows: Sequence[Row], budget: int) -> Stages:
    """Add the times of the first questions, drawn in a batch."""
    questions = [row.question for row in rows[:_TIMED]]
    seeds = [derive_seed(0, "calibrate", number) for number in range(len(questions))]
    panel = loaded.panel
    places, seconds, begin = panel.places(budget), [], 0
    batch = Batch(loaded, questions, seeds, _LANES)
    for end in panel.stages(places):
        seconds.append(batch.draw(places[begin:end]) / len(questions))
        begin = end
    whole = Batch(loaded, questions, seeds, _LANES).draw(places) / len(questions)
    return replace(stages, seconds=np.array(seconds), fixed_seconds=whole)


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw, measure every level, print them and the choice, and write it if asked to."""
    name = "python -m trainer.evaluation.sure"
    parser = argparse.ArgumentParser(prog=name, description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", default="panel-tiny", help="embedded panel or folder")
    parser.add_argument("--data", default="embedded:validation", help="where questions come from")
    parser.add_argument("--limit", type=int, default=1000, help="questions to draw")
    parser.add_argument("--budget", type=int, default=32, help="trajectories of the panel")
    parser.add_argument("--loss", type=float, default=0.1, help="points that may be lost")
    parser.add_argument("--write", action="store_true", help="write the choice into panel.json")
    options = parser.parse_args(arguments)
    try:
        folder = find_panel(options.model)
        loaded = latent.load_panel(options.model)
        if loaded.panel.split == "fixed":
            loaded.panel = replace(loaded.panel, split="adaptive")
        panel = loaded.panel
        if folder is None or panel.calibration("majority") is None:
            raise NotFoundError(f"{options.model} has no calibration; run gts calibrate first")
        rows = load_rows(options.data, options.limit, _DATA_SEED)
        with Progress(len(rows) * len(panel.members), 0, "drawing", line_seconds=10) as progress:
            drawn = draw_places(loaded, rows, set(panel.places(options.budget)), 0, progress)
        stages = _timed(stages_of(panel, rows, drawn, options.budget), loaded, rows, options.budget)
        levels = [measure(stages, sure) for sure in LEVELS]
        chosen = choose(levels, options.loss / 100)
        if options.write:
            path = folder / "panel.json"
            write_json(path, read_json(path) | {"sure": chosen.sure})
    except GtsError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    times = " + ".join(f"{1e3 * each:.1f}" for each in stages.seconds)
    print(f"{len(rows)} questions; the fixed split has {stages.is_right[:, -1].mean():.1%} right")
    print(f"ms of a question in a batch: {times}; fixed split {1e3 * stages.fixed_seconds:.1f}")
    print("sure   right  less the fixed, points    time  asked")
    for one in levels:
        value, low, high = (100 * each for each in vars(one.difference).values())
        asked = " ".join(f"{each:4.0%}" for each in one.asked)
        print(
            f"{one.sure:.2f}  {one.accuracy:6.1%}  {value:+.1f} ({low:+.1f} to {high:+.1f})".ljust(
                40
            )
            + f"{one.time:4.0%}  {asked}"
        )
    print(f"chosen: {chosen.sure}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
