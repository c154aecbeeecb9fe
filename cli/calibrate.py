"""`gts calibrate`: fits the probability that a voted answer is right, on held-out questions."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.options import Device, Dtype, ModelOrPanel, Threads, load_panel, load_reasoner

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.table import Table

    from latent.calibration import Calibration
    from latent.panel_calibration import PanelCalibration
    from trainer.evaluation.calibration import CalibrationReport
    from trainer.evaluation.calibration_fit import Transfer
    from trainer.evaluation.risk import RiskCurve

__all__ = ["calibrate_command"]


def calibrate_command(
    model: ModelOrPanel,
    samplers: Annotated[
        str | None,
        typer.Option(
            help="Samplers to calibrate, joined by commas. Without it: the one that gts solve uses "
            "by default.",
            show_default=False,
        ),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="Held-out questions, at least 50: embedded:validation, or a file of rows. Again, for "
            "questions of other kinds, so that the confidence is right for them too: a file, "
            "embedded:ood, everyday or drills.  [default: embedded:validation]",
            show_default=False,
        ),
    ] = None,
    budgets: Annotated[
        str, typer.Option(help="Budgets to fit together; other budgets are clamped to their range.")
    ] = "1,2,4,8,16,32,64",
    limit: Annotated[
        int, typer.Option(min=1, help="Questions of each --data; a warning below 200.")
    ] = 500,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the trajectories.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            help="The file to write, or its folder. Without it: calibration.json in the reasoner's "
            "folder, or for an embedded one a file in ~/.local/share/gts; serving looks there.",
            show_default=False,
        ),
    ] = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    threads: Threads = None,
) -> None:
    """Fit the probability that a voted answer is right, from its votes and how familiar its words are.

    Every vote is fitted from the same trajectories. Of a panel, the weights of its members are fitted
    too; without them their shares add. /solve and gts solve --json then give this
    probability as the confidence, with confidence_kind "calibrated". Also prints how many questions
    are answered with at least some confidence, and how many of those rightly; of a reasoner with
    several --data, how far off the confidence is on each if it is fitted on the others alone.

    [bold]Examples[/bold]

    gts calibrate --model ./my-coconut --samplers gts,gaussian:1.0

    gts calibrate --model ./my-coconut --samplers gts --data held-out.jsonl --budgets 1,2,4,8,16

    gts calibrate --model cot-tiny --data embedded:validation --data embedded:ood --data everyday

    gts calibrate --model ./my-panel --budgets 1,2,4,8,16,32
    """
    from latent.errors import InputError
    from latent.folders import fingerprint
    from latent.panel_file import member_digests, panel_key, read_panel
    from latent.zoo import find_panel, resolve_model
    from trainer.evaluation.calibration import (
        CalibrationReport,
        CalibrationRun,
        calibrate,
        parse_budgets,
        parse_samplers,
    )
    from trainer.evaluation.panel_calibration import calibrate_panel

    panel = find_panel(model)
    sources = tuple(data or ["embedded:validation"])
    if panel is not None:
        if samplers is not None:
            raise InputError("the members of a panel have their own samplers; leave --samplers out")
        # A calibration that does not fit any more is what this command replaces.
        loaded = load_panel(model, device, dtype, threads, is_calibrated=False)
        files = read_panel(panel)
        key = panel_key(member_digests(files, [each.fingerprint for each in loaded.reasoners]))
        place = _place(model, panel, key, out)
        run = CalibrationRun((), sources, parse_budgets(budgets), limit=limit, seed=seed, out=place)
        votes, curve = calibrate_panel(loaded, files, run)
        reports = {"panel": CalibrationReport(curve)}
        _print([("panel", one) for one in votes], reports, sources, place)
        return
    folder = resolve_model(model)
    specs = None if samplers is None else parse_samplers(samplers)
    asked = parse_budgets(budgets)
    place = _place(model, folder, fingerprint(folder), out)
    reasoner = load_reasoner(model, device, dtype, threads)
    chosen = specs or (reasoner.sampler().spec,)
    run = CalibrationRun(chosen, sources, asked, limit=limit, seed=seed, out=place)
    fitted, reports = calibrate(reasoner, folder, run)
    _print([(one.sampler, one) for one in fitted.fitted], reports, sources, place)


def _place(model: str, folder: Path, key: str, out: Path | None) -> Path:
    """The file to write; refused now, before hours of work, if it cannot be written."""
    from latent.calibration_file import FILE_NAME, user_file
    from latent.errors import InputError
    from latent.zoo import embedded_models, embedded_panels

    if out is None and model in {**embedded_models(), **embedded_panels()}:
        place = user_file(folder.name, key)
        place.parent.mkdir(parents=True, exist_ok=True)
    else:
        place = out or folder / FILE_NAME
        place = place / FILE_NAME if place.is_dir() else place
    if not os.access(place.parent, os.W_OK):
        raise InputError(f"{place} cannot be written: {place.parent} is no folder to write to")
    return place


def _print(
    fitted: "Sequence[tuple[str, Calibration | PanelCalibration]]",
    reports: "Mapping[str, CalibrationReport]",
    sources: "Sequence[str]",
    place: Path,
) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("sampler", "vote"):
        table.add_column(title)
    for title in ("ECE", "of other kinds", "of the share", "questions", "budgets"):
        table.add_column(title, justify="right")
    for sampler, one in fitted:
        table.add_row(
            sampler,
            one.vote,
            f"{one.ece:.3f}",
            "" if one.ece_outside is None else f"{one.ece_outside:.3f}",
            f"{one.share_ece:.3f}",
            str(one.questions),
            f"{one.budgets[0]}–{one.budgets[1]}",
        )
    console = Console()
    console.print(table)
    for sampler, report in reports.items():
        console.print()
        console.print(_risks(sampler, report.curve))
        if report.transfers:
            console.print()
            console.print(_transfers(sampler, report.transfers, sources))
    console.print(str(place), style="dim", soft_wrap=True, highlight=False)


def _transfers(sampler: str, transfers: "Sequence[Transfer]", sources: "Sequence[str]") -> "Table":
    """Table of how well each data is predicted by a fit on the others."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column(f"{sampler}: fitted on the others, tried on")
    table.add_column("ECE", justify="right")
    table.add_column("confidence less share right", justify="right")
    for one in transfers:
        table.add_row(Path(sources[one.kind]).name, f"{one.ece:.3f}", f"{one.excess:+.3f}")
    return table


def _risks(sampler: str, curve: "RiskCurve") -> "Table":
    """Table of a risk–coverage curve: the majority vote with the largest budget, out of fold."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column(f"{sampler}: confidence at least", justify="right")
    kinds = [curve.inside, *([curve.outside] if curve.outside else [])]
    for kind in ("", " of other kinds")[: len(kinds)]:
        table.add_column(f"answered{kind}", justify="right")
        table.add_column("of these right", justify="right")
    for points in zip(*kinds, strict=True):
        cells = [f"{points[0].threshold:.2f}"]
        for point in points:
            right = "–" if point.accuracy is None else f"{point.accuracy:.1%}"
            cells += [f"{point.coverage:.1%}", right]
        table.add_row(*cells)
    return table
