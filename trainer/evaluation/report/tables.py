"""The tables of one evaluation as text in cells, for the HTML page and docs/results.md."""

import json
import shlex
from collections.abc import Iterable
from dataclasses import dataclass

from trainer.evaluation.report.paper import PaperRow, paper_rows
from trainer.evaluation.statistics import Interval
from trainer.evaluation.summary import Seeds, Summary

__all__ = [
    "NOTHING",
    "Cell",
    "Table",
    "accuracy_table",
    "command",
    "config_table",
    "cost_table",
    "decimal",
    "malformed_table",
    "measured_votes",
    "operations_table",
    "paired_table",
    "parameters",
    "pass_at_table",
    "percent",
    "points",
    "quality_table",
    "seed_table",
    "signed",
    "stop_table",
]

_MALFORMED_SHOWN = 50
_VOTES = ("majority", "confidence", "best", "centroid", "checked", "likelihood", "verifier")


@dataclass(frozen=True)
class Cell:
    """A cell: text, an interval in smaller type, and whether it is emphasised."""

    text: str
    detail: str = ""
    is_strong: bool = False


NOTHING = Cell("–")


@dataclass(frozen=True)
class Table:
    """A table; its first column is the row header."""

    title: str
    note: str
    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


def percent(measured: Interval | None) -> Cell:
    """A share as a percentage with its interval."""
    if measured is None:
        return NOTHING
    return Cell(
        f"{measured.value * 100:.1f}", f"{measured.low * 100:.1f}–{measured.high * 100:.1f}"
    )


def decimal(measured: Interval | None, places: int = 2) -> Cell:
    """A number with its interval."""
    if measured is None:
        return NOTHING
    low, high = signed(measured.low, places), signed(measured.high, places)
    return Cell(signed(measured.value, places), f"{low} to {high}")


def points(difference: Interval, *, is_share: bool) -> Cell:
    """A difference with its sign, in percentage points for shares; emphasised if significant."""
    scale, places = (100.0, 1) if is_share else (1.0, 2)
    numbers = (difference.value * scale, difference.low * scale, difference.high * scale)
    value, low, high = (signed(number, places, plus=True) for number in numbers)
    return Cell(value, f"{low} to {high}", is_strong=difference.excludes_zero)


def parameters(count: int) -> str:
    """A number of parameters in millions."""
    return f"{count / 1e6:,.2f} M" if count < 1e7 else f"{count / 1e6:,.0f} M"


def signed(number: float, places: int, *, plus: bool = False) -> str:
    """Format with the Unicode minus sign, and without one before zero."""
    text = f"{number:+.{places}f}" if plus else f"{number:.{places}f}"
    if float(text) == 0:
        return f"{0:.{places}f}"
    return text.replace("-", "−")


def measured_votes(run: Summary) -> list[str]:
    """The votes that some sampler was measured with, in the order of reports."""
    return [vote for vote in _VOTES if any(one.votes.get(vote) for one in run.sampling)]


def accuracy_table(run: Summary) -> Table:
    """Accuracy of one trajectory and of each vote."""
    at = [(vote, n) for vote in measured_votes(run) for n in _shown(run, vote)]
    empty = tuple(NOTHING for _ in at)
    rows = [(Cell("deterministic"), percent(run.accuracy), *empty)]
    rows += [
        (
            Cell(one.spec),
            percent(one.pass_at.get(1)),
            *(percent(one.votes.get(vote, {}).get(n)) for vote, n in at),
        )
        for one in run.sampling
    ]
    head = ("sampler", "one trajectory", *(f"{vote}@{n}" for vote, n in at))
    note = "Percent of questions answered right, with 95% bootstrap intervals over questions."
    return Table("Accuracy", note, head, tuple(rows))


def operations_table(run: Summary) -> Table | None:
    """Deterministic accuracy by number of operations; None if the data has no operations."""
    if not run.deterministic.by_operations:
        return None
    rows = tuple(
        (Cell(str(steps)), percent(accuracy))
        for steps, accuracy in run.deterministic.by_operations.items()
    )
    note = "Percent answered right by the deterministic trajectory."
    return Table("Accuracy by number of operations", note, ("operations", "accuracy"), rows)


def pass_at_table(run: Summary) -> Table:
    """pass@N of each sampler; at N = 1 it is called mean@1."""
    at = sorted({n for one in run.sampling for n in one.pass_at})
    rows = tuple(
        (Cell(one.spec), *(percent(one.pass_at.get(n)) for n in at)) for one in run.sampling
    )
    head = ("sampler", *("mean@1" if n == 1 else f"pass@{n}" for n in at))
    note = "Percent of questions with a right answer among N trajectories, unbiased over subsets."
    return Table("pass@N", note, head, rows)


def quality_table(run: Summary) -> Table:
    """SG, SG > 0.5 and JS, with the paper's numbers if the backbone is one of the paper's."""
    budget = min(run.config.gain_budget, run.config.budget)
    paper = paper_rows(run.model, tuple(one.spec for one in run.sampling), budget)
    theirs = ("paper SG", "paper SG > 0.5", "paper JS") if paper else ()
    has_whole = any(one.gain_whole for one in run.sampling)
    rows = tuple(
        (
            Cell(one.spec),
            decimal(one.gain),
            decimal(one.gain_rate),
            decimal(one.js, 3),
            Cell(one.regime) if one.regime else NOTHING,
            *((decimal(one.gain_whole),) if has_whole else ()),
            *(_paper_cells(paper.get(one.spec)) if paper else ()),
        )
        for one in run.sampling
    )
    note = (
        f"At N = {budget}: the best gain in log-odds of the right answer's first token over the "
        "deterministic trajectory (SG), the share of questions where it is above 0.5, and the "
        "Jensen–Shannon divergence of the answer's distribution in nats (JS)."
    )
    if paper:
        note += f" The paper's numbers are for the GSM8K test set; this run is on {run.data.name}."
    whole = ("SG, whole answer",) if has_whole else ()
    head = ("sampler", "SG", "SG > 0.5", "JS", "regime", *whole, *theirs)
    return Table("Sampling quality", note, head, rows)


def stop_table(run: Summary) -> Table | None:
    """Adaptive budgets of the calibrated samplers, beside the whole budget."""
    rows = []
    for one in run.sampling:
        if not one.stops:
            continue
        whole = max(one.majority)
        rows.append(
            (Cell(one.spec), Cell("none"), Cell(str(whole)), percent(one.majority[whole]), NOTHING)
        )
        rows += [
            (
                Cell(one.spec),
                Cell(f"{stop.kind} {stop.level:g}"),
                Cell(f"{stop.trajectories.value:.1f}"),
                percent(stop.accuracy),
                Cell(f"{stop.trajectories.value / whole:.0%}"),
            )
            for stop in one.stops
        ]
    if not rows:
        return None
    note = (
        "A budget that ends at the first of 4, 8, 16 … trajectories where the stop is reached: how many "
        "it uses on average, and how often the majority's answer is then right."
    )
    head = ("sampler", "stop", "trajectories", "right", "of the whole budget")
    return Table("Adaptive budgets", note, head, tuple(rows))


def paired_table(run: Summary) -> Table | None:
    """Paired differences of each learned sampler to every other one."""
    pairs = run.first_seeds().paired
    if not pairs:
        return None
    rows = tuple(
        (
            Cell(f"{pair.against} − {pair.sampler}"),
            Cell(pair.measure),
            points(pair.interval, is_share=_is_share(pair.measure)),
            Cell(_verdict(pair.interval), is_strong=pair.interval.excludes_zero),
        )
        for pair in pairs
    )
    note = (
        "Paired bootstrap over questions with 95% intervals, in percentage points (gain: log-odds). "
        "“Higher” and “lower” mean that the interval excludes 0."
    )
    return Table("Against GTS", note, ("pair", "measure", "difference", "verdict"), rows)


def seed_table(seeds: Seeds) -> Table:
    """Mean over training seeds, and its difference to each other sampler."""
    measures = list(seeds.measures)
    found = {(pair.sampler, pair.measure): pair.interval for pair in seeds.paired}
    rows = [
        (
            Cell("mean"),
            *(
                percent(value) if _is_share(name) else decimal(value)
                for name, value in seeds.measures.items()
            ),
        )
    ]
    rows += [
        (
            Cell(f"− {other}"),
            *(
                points(found[other, name], is_share=_is_share(name))
                if (other, name) in found
                else NOTHING
                for name in measures
            ),
        )
        for other in dict.fromkeys(pair.sampler for pair in seeds.paired)
    ]
    note = (
        f"The mean of {', '.join(seeds.samplers)}, trained alike but for the seed, and that mean "
        "less each other sampler: paired bootstrap over questions, 95% intervals, percentage "
        "points (gain: log-odds). Others that were trained alike are a mean too."
    )
    head = ("", *measures)
    return Table(f"{seeds.samplers[0]} over {len(seeds.samplers)} seeds", note, head, tuple(rows))


def cost_table(run: Summary) -> Table:
    """Tokens, trajectories and seconds of each sampler."""
    rows = tuple(
        (
            Cell(one.spec),
            Cell(f"{one.trajectories:,}"),
            Cell(f"{one.tokens:,}"),
            Cell(f"{one.seconds:,.1f}"),
        )
        for one in run.samplers
    )
    note = f"Answer tokens decoded; all together {run.seconds:,.1f} seconds."
    return Table("Cost", note, ("sampler", "trajectories", "tokens", "seconds"), rows)


def malformed_table(run: Summary) -> Table | None:
    """Rows of the data that were left out, and why."""
    if not run.data.malformed:
        return None
    shown = run.data.malformed[:_MALFORMED_SHOWN]
    rows = tuple((Cell(str(row.line)), Cell(row.reason)) for row in shown)
    note = f"{len(run.data.malformed)} rows of {run.data.name} were left out."
    if len(shown) < len(run.data.malformed):
        note += f" The first {len(shown)} are shown; summary.json has them all."
    return Table("Malformed rows", note, ("line", "reason"), rows)


def config_table(run: Summary) -> Table:
    """Every setting of the run."""
    settings = run.config.model_dump(exclude_unset=True)
    rows = tuple((Cell(name), Cell(_setting(settings[name]))) for name in sorted(settings))
    return Table("Configuration", "", ("setting", "value"), rows)


def command(run: Summary, out: str) -> str:
    """The command that repeats the run."""
    config = run.config
    options: list[tuple[str, object]] = [
        ("model", config.model),
        ("data", config.data),
        ("samplers", ",".join(config.samplers)),
        ("budget", config.budget),
        ("limit", config.limit),
        ("seed", config.seed),
        ("out", out),
    ]
    given = ((name, value) for name, value in options if value is not None)
    return "gts evaluate " + " ".join(
        f"--{name} {shlex.quote(str(value))}" for name, value in given
    )


def _is_share(measure: str) -> bool:
    """Whether a measure is a share of questions, like pass@8 and majority@32."""
    return "@" in measure


def _shown(run: Summary, vote: str) -> list[int]:
    """Budgets of a vote to show: the largest, and 32 for majority."""
    measured = {n for one in run.sampling for n in one.votes.get(vote, {})}
    wanted = {32, max(measured)} if vote == "majority" else {max(measured)}
    return sorted(wanted & measured)


def _paper_cells(row: PaperRow | None) -> Iterable[Cell]:
    if row is None:
        return (NOTHING, NOTHING, NOTHING)
    return (Cell(signed(number, 2)) for number in (row.gain, row.gain_rate, row.js))


def _verdict(difference: Interval) -> str:
    if not difference.excludes_zero:
        return "not clear"
    return "higher" if difference.value > 0 else "lower"


def _setting(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
