"""What a panel's summary says: its format, a table of members and splits, and a sentence or two."""

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from latent.errors import FormatError
from latent.files import read_json
from latent.votes import VoteKind
from trainer.evaluation.config import EvaluationConfig
from trainer.evaluation.panel_measures import PANEL_VERSION
from trainer.evaluation.records import first_error
from trainer.evaluation.report.tables import NOTHING, Cell, Table
from trainer.evaluation.statistics import Interval

__all__ = ["PanelSummary", "panel_command", "panel_table", "panel_text", "read_panel_summary"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)


class MemberResult(_Frozen):
    """A member alone with the whole budget, and its deterministic trajectory."""

    vote: VoteKind
    accuracy: Interval
    deterministic: Interval
    seconds_per_trajectory: float


class PanelResult(_Frozen):
    """The panel under one split; `less` are paired differences to members and other splits."""

    accuracy: Interval
    ece: float
    trajectories: dict[str, float]
    less: dict[str, Interval]


class TimeResult(_Frozen):
    """Mean processor seconds of a question under a split, and their share of the fixed one's."""

    seconds: float
    share: Interval


class PanelSummary(_Frozen):
    """summary.json of a panel."""

    config: dict[str, Any]
    panel: dict[str, Any]
    data: dict[str, Any]
    members: dict[str, MemberResult]
    panels: dict[str, PanelResult]
    one_right: Interval
    time: dict[Literal["alone", "together"], dict[str, TimeResult]]  # one by one, or in batches

    @property
    def best(self) -> str:
        """The member that is right most often with the whole budget."""
        return max(self.members, key=lambda label: self.members[label].accuracy.value)


def read_panel_summary(path: Path) -> PanelSummary:
    """Read a panel's summary; errors name the file and the field."""
    data = read_json(path)
    if not isinstance(data, dict) or data.get("version") != PANEL_VERSION:
        raise FormatError(f"{path} is not a panel's summary of gts evaluate, {PANEL_VERSION}")
    try:
        return PanelSummary.model_validate(data)
    except ValidationError as error:
        raise FormatError(f"{path}: {first_error(error)}") from error


def panel_table(run: PanelSummary) -> Table:
    """Accuracy, calibration error and trajectories of the members alone and of the panel."""
    budget = run.config["budget"]
    rows = [
        (
            Cell(f"{label} alone, vote {one.vote}"),
            Cell(_percent(one.accuracy)),
            NOTHING,
            NOTHING,
            Cell(f"{budget} of its own"),
        )
        for label, one in run.members.items()
    ]
    for name, one in run.panels.items():
        drawn = " + ".join(f"{count:.1f}".removesuffix(".0") for count in one.trajectories.values())
        rows.append(
            (
                Cell(f"panel, {name}"),
                Cell(_percent(one.accuracy)),
                Cell(_points(one.less[run.best])),
                Cell(f"{one.ece:.3f}"),
                Cell(drawn),
            )
        )
    head = ("", "right, %", "less the best member", "ECE", "trajectories")
    return Table("", "", head, tuple(rows))


def panel_text(run: PanelSummary) -> str:
    """The result in words."""
    fixed = run.panels["fixed"]
    best = run.members[run.best]
    return (
        f"With a budget of {run.config['budget']} for {run.data['rows']:,} questions of "
        f"{run.data['name']}, the panel answers {100 * fixed.accuracy.value:.1f}% right; its best "
        f"member, {run.best}, {100 * best.accuracy.value:.1f}% with the whole budget alone and the "
        f"vote {best.vote} (difference {_points(fixed.less[run.best])} points, paired). One of the "
        f"panel's trajectories is right for {100 * run.one_right.value:.1f}%. "
        + " ".join(_split_text(run, split) for split in ("adaptive", "early"))
    )


def panel_command(run: PanelSummary, out: str) -> str:
    """The command that makes this summary."""
    config = run.config
    limit = f" --limit {config['limit']}" if config["limit"] is not None else ""
    timed = config.get("timed", EvaluationConfig.timed)
    times = f" --timed {timed}" if timed != EvaluationConfig.timed else ""
    return (
        f"gts evaluate --model {config['model']} --data {config['data']} --budget {config['budget']}"
        f"{limit}{times} --seed {config['seed']} --out {out}"
    )


def _percent(found: Interval) -> str:
    return f"{100 * found.value:.1f} ({100 * found.low:.1f}–{100 * found.high:.1f})"


def _split_text(run: PanelSummary, split: str) -> str:
    shares = [_share(run, way, split) for way in ("together", "alone")]
    return (
        f"The {split} split differs by {_points(run.panels[split].less['fixed'])} points from the "
        f"fixed one; in batches of questions it takes {shares[0]} of the time, one question at a time "
        f"{shares[1]}."
    )


def _share(run: PanelSummary, way: Literal["alone", "together"], split: str) -> str:
    own, fixed = run.time[way][split], run.time[way]["fixed"]
    return (
        f"{100 * own.share.value:.0f}% ({100 * own.share.low:.0f} to {100 * own.share.high:.0f}%; "
        f"{1e3 * own.seconds:.0f} and {1e3 * fixed.seconds:.0f} ms of one core)"
    )


def _points(found: Interval) -> str:
    value, low, high = (
        f"{100 * x:+.1f}".replace("-", "−") for x in (found.value, found.low, found.high)
    )
    return f"{value} ({low} to {high})"
