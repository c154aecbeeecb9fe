"""The tables of one evaluation, as text in cells; pages and the README lay them out."""

import json
import shlex
from collections.abc import Iterable, Sequence

from trainer.evaluation.report.cells import NOTHING, Cell, Table, decimal, percent, points, signed
from trainer.evaluation.report.findings import Interval, Run, SamplerResult, Seeds, Series
from trainer.evaluation.report.paper import PaperRow, paper_rows

__all__ = [
    "accuracy_table",
    "best",
    "command",
    "config_table",
    "cost_table",
    "malformed_table",
    "operations_table",
    "paired_table",
    "pass_at_table",
    "quality_table",
    "seed_tables",
]

_MALFORMED_SHOWN = 50
_VOTES = ("majority", "confidence", "best", "centroid")


def accuracy_table(run: Run) -> Table:
    """Accuracy with one trajectory and with each vote."""
    votes = [vote for vote in _VOTES if any(one.votes.get(vote) for one in run.sampling)]
    at = [(vote, n) for vote in votes for n in _shown(run, vote)]
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


def operations_table(run: Run) -> Table | None:
    """Deterministic accuracy by how many operations a question needs, where the data says."""
    if not run.accuracy_by_operations:
        return None
    rows = tuple(
        (Cell(str(steps)), percent(accuracy))
        for steps, accuracy in run.accuracy_by_operations.items()
    )
    note = "Percent answered right by the deterministic trajectory."
    return Table("Accuracy by number of operations", note, ("operations", "accuracy"), rows)


def pass_at_table(run: Run) -> Table:
    """pass@N of each sampler; the first column of numbers is one sample's accuracy."""
    at = sorted({n for one in run.sampling for n in one.pass_at})
    rows = tuple(
        (Cell(one.spec), *(percent(one.pass_at.get(n)) for n in at)) for one in run.sampling
    )
    head = ("sampler", *("mean@1" if n == 1 else f"pass@{n}" for n in at))
    note = "Percent of questions with a right answer among N trajectories, unbiased over subsets."
    return Table("pass@N", note, head, rows)


def quality_table(run: Run) -> Table:
    """SG, SG > 0.5 and JS; the paper's own numbers beside them where the backbone is the paper's."""
    budget = min(int(run.config["gain_budget"]), run.budget)
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
        note += f" The paper's numbers are for the GSM8K test set; this run is on {run.data_name}."
    whole = ("SG, whole answer",) if has_whole else ()
    head = ("sampler", "SG", "SG > 0.5", "JS", "regime", *whole, *theirs)
    return Table("Sampling quality", note, head, rows)


def paired_table(run: Run) -> Table | None:
    """What a learned sampler adds to each other one, question by question."""
    pairs = run.without_repeats().paired
    if not pairs:
        return None
    rows = []
    for pair in pairs:
        difference = points(pair.difference, is_share=_is_share(pair.measure))
        rows.append(
            (
                Cell(f"{pair.against} − {pair.sampler}"),
                Cell(pair.measure),
                difference,
                Cell(_verdict(pair.difference), is_strong=difference.is_strong),
            )
        )
    note = (
        "Paired bootstrap over questions with 95% intervals, in percentage points (gain: log-odds). "
        "“Higher” and “lower” are said where the interval is clear of 0."
    )
    return Table("Against GTS", note, ("pair", "measure", "difference", "verdict"), tuple(rows))


def seed_tables(run: Run) -> list[Table]:
    """The mean over training seeds, and what it adds to each other sampler."""
    return [_seed_table(one) for one in run.seeds]


def _seed_table(seeds: Seeds) -> Table:
    measures = list(seeds.measures)
    found = {(pair.sampler, pair.measure): pair.difference for pair in seeds.paired}
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


def cost_table(run: Run) -> Table:
    """Tokens, trajectories and seconds spent."""
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


def malformed_table(run: Run) -> Table | None:
    """The rows of the data that were left out, and why."""
    if not run.malformed:
        return None
    shown = run.malformed[:_MALFORMED_SHOWN]
    rows = tuple((Cell(str(row.line)), Cell(row.reason)) for row in shown)
    note = f"{len(run.malformed)} rows of {run.data_name} were left out."
    if len(shown) < len(run.malformed):
        note += f" The first {len(shown)} are shown; summary.json has them all."
    return Table("Malformed rows", note, ("line", "reason"), rows)


def config_table(run: Run) -> Table:
    """Every setting of the run."""
    rows = tuple((Cell(name), Cell(_setting(run.config[name]))) for name in sorted(run.config))
    return Table("Configuration", "", ("setting", "value"), rows)


def command(run: Run, out: str) -> str:
    """Give the command that repeats the run."""
    config = run.config
    options: list[tuple[str, object]] = [
        ("model", config["model"]),
        ("data", config["data"]),
        ("samplers", ",".join(config["samplers"])),
        ("budget", run.budget),
        ("limit", config.get("limit")),
        ("seed", config["seed"]),
        ("out", out),
    ]
    given = ((name, value) for name, value in options if value is not None)
    return "gts evaluate " + " ".join(
        f"--{name} {shlex.quote(str(value))}" for name, value in given
    )


def _is_share(measure: str) -> bool:
    """Tell measures that are shares of questions (pass@8, majority@32) from those that are not."""
    return "@" in measure


def _shown(run: Run, vote: str) -> list[int]:
    """The budgets of a vote that a table has room for: the largest, and 32 for majority."""
    measured = {n for one in run.sampling for n in one.votes.get(vote, {})}
    wanted = {32, max(measured)} if vote == "majority" else {max(measured)}
    return sorted(wanted & measured)


def _paper_cells(row: PaperRow | None) -> Iterable[Cell]:
    if row is None:
        return (NOTHING, NOTHING, NOTHING)
    return (Cell(signed(number, 2)) for number in (row.gain, row.gain_rate, row.js))


def _verdict(difference: Interval) -> str:
    if not difference.is_clear_of_zero:
        return "not clear"
    return "higher" if difference.value > 0 else "lower"


def _setting(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def best(samplers: Sequence[SamplerResult]) -> SamplerResult:
    """Give the sampler with the highest pass@N at its largest N; the first of equals."""
    return max(samplers, key=lambda one: _last(one.pass_at))


def _last(series: Series) -> float:
    return series[max(series)].value
