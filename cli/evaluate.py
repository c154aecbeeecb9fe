"""`gts evaluate`: measures samplers on a set of questions; also under torchrun, on several ranks."""

import sys
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.options import Dtype, Json, ModelOrPanel, Threads
from latent.zoo import DEFAULT_LATENT_MODEL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from trainer.evaluation.config import EvaluationConfig
    from trainer.evaluation.statistics import Interval
    from trainer.evaluation.summary import Summary


def evaluate_command(
    out: Annotated[Path, typer.Option(help="Folder of the run; an interrupted run continues.")],
    samplers: Annotated[
        str | None,
        typer.Option(
            help="With commas: deterministic,dropout:0.1,gaussian,gts,gts:./DIR,token. A panel has its "
            "own, and takes none."
        ),
    ] = None,
    model: ModelOrPanel = DEFAULT_LATENT_MODEL,
    data: Annotated[
        str,
        typer.Option(
            help="embedded[:test|validation|ood|train], or a file: GSM8K, GSM8K-Aug lines, SVAMP, "
            "MultiArith, GSM-Hard, MAWPS CSV, or JSONL with question and answer."
        ),
    ] = "embedded:test",
    budget: Annotated[int, typer.Option(help="How many trajectories each question gets.")] = 128,
    limit: Annotated[
        int | None, typer.Option(help="Number of questions; all by default (embedded: 1000).")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the trajectories and of the bootstrap.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:0.")] = "cpu",
    dtype: Dtype = "auto",
    threads: Threads = None,
    lanes: Annotated[int, typer.Option(help="How many trajectories run at a time.")] = 512,
    timed: Annotated[
        int,
        typer.Option(help="Of a panel: questions drawn again under each split, for its time."),
    ] = 200,
    as_json: Json = False,
) -> None:
    """Measure samplers on a set of questions: pass@N, votes, SG, JS, with 95% intervals.

    Example: gts evaluate --samplers deterministic,dropout:0.1,gts --budget 32 --out runs/embedded

    A panel: gts evaluate --model panel-tiny --budget 32 --out runs/panel-tiny

    Ranks: torchrun --nproc-per-node 2 --no-python gts evaluate …
    """
    from latent.errors import InputError
    from latent.zoo import find_panel
    from trainer.evaluation.config import EvaluationConfig, parse_samplers

    is_panel = find_panel(model) is not None
    if is_panel == (samplers is not None):
        raise InputError(
            "the members of a panel have their own samplers; leave --samplers out"
            if is_panel
            else "say what to measure, as in --samplers deterministic,gts"
        )
    config = EvaluationConfig(
        model=model,
        data=data,
        samplers=parse_samplers(samplers) if samplers is not None else (),
        budget=budget,
        limit=limit,
        seed=seed,
        device=device,
        dtype=dtype,
        threads=threads,
        lanes=lanes,
        timed=timed,
    )
    if is_panel:
        _evaluate_panel(config, out, as_json=as_json)
        return
    from trainer.evaluation.run import evaluate

    with redirect_stdout(sys.stderr) if as_json else nullcontext():
        summary = evaluate(config, out)
    if summary is None:  # rank 0 reports
        return
    from trainer.evaluation.report.page import write_report

    report = write_report(out)
    if as_json:
        import json

        typer.echo(json.dumps(summary, indent=2, ensure_ascii=False))
        return
    from trainer.evaluation.summary import read_run

    _print(read_run(out), report)


def _evaluate_panel(config: "EvaluationConfig", out: Path, *, as_json: bool) -> None:
    import json

    from rich.console import Console

    from trainer.evaluation.panels import evaluate_panel
    from trainer.evaluation.report.panels import panel_table, panel_text, read_panel_summary

    with redirect_stdout(sys.stderr) if as_json else nullcontext():
        summary = evaluate_panel(config, out)
    if as_json:
        typer.echo(json.dumps(summary, indent=2, ensure_ascii=False))
        return
    run = read_panel_summary(out / "summary.json")
    shown = panel_table(run)
    table = _empty_table(shown.head)
    for row in shown.rows:
        table.add_row(*(cell.text for cell in row))
    console = Console(highlight=False)
    console.width = max(console.width, 120)  # so that no member's name is folded
    console.print(table)
    console.print(panel_text(run), soft_wrap=True)


def _print(run: "Summary", report: Path) -> None:
    from rich.console import Console

    console = Console(soft_wrap=True)
    malformed = len(run.data.malformed)
    left_out = f", {malformed} left out" if malformed else ""
    console.print(
        f"{run.model.name} on {run.data.name}: {run.data.rows} questions{left_out}; "
        f"deterministic accuracy {_percent(run.accuracy)}",
        highlight=False,
    )
    console.print(_table(run))
    console.print(f"report in {report}", highlight=False)


def _table(run: "Summary") -> "Table":
    budget = run.config.budget
    titles = ("mean@1", f"pass@{budget}", f"majority@{budget}", "SG", "SG>0.5", "JS")
    table = _empty_table(("sampler", *titles))
    for one in run.sampling:
        table.add_row(
            one.spec,
            f"{100 * one.pass_at[1].value:.1f}",
            _percent(one.pass_at[budget]),
            _percent(one.majority[budget]),
            *(
                "–" if found is None else f"{found.value:.2f}"
                for found in (one.gain, one.gain_rate, one.js)
            ),
        )
    return table


def _empty_table(titles: "Sequence[str]") -> "Table":
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column(titles[0], overflow="fold")  # cut off, two long paths might look equal
    for title in titles[1:]:
        table.add_column(title, justify="right", no_wrap=True)
    return table


def _percent(found: "Interval") -> str:
    return f"{100 * found.value:.1f} [{100 * found.low:.1f}, {100 * found.high:.1f}]"
