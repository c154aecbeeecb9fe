"""`gts calibrate`: fits the probability that a voted answer is right, on held-out questions."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.options import Device, Dtype, ModelOrPanel, Threads, load_panel, load_reasoner

if TYPE_CHECKING:
    from collections.abc import Sequence

    from latent.calibration import Calibration
    from latent.panel_calibration import PanelCalibration

__all__ = ["calibrate_command"]


def calibrate_command(
    model: ModelOrPanel,
    samplers: Annotated[
        str | None,
        typer.Option(
            help="Samplers to calibrate, joined by commas. Without it: gts, or token for a text "
            "reasoner.",
            show_default=False,
        ),
    ] = None,
    data: Annotated[
        str,
        typer.Option(
            help="Held-out questions, at least 50: embedded:validation, or a file of rows."
        ),
    ] = "embedded:validation",
    budgets: Annotated[
        str, typer.Option(help="Budgets to fit together; other budgets are clamped to their range.")
    ] = "1,2,4,8,16,32,64",
    limit: Annotated[
        int, typer.Option(min=1, help="Number of questions; a warning below 200.")
    ] = 500,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the trajectories.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            help="The file to write, or its folder. Without it: calibration.json in the reasoner's "
            "folder, where serving looks for it.",
            show_default=False,
        ),
    ] = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    threads: Threads = None,
) -> None:
    """Fit the probability that a voted answer is right, from its share, confidence and budget.

    Every vote is fitted from the same trajectories. Of a panel, the weights of its members are fitted
    too; without them their shares add. /solve and gts solve --json then give this
    probability as the confidence, with confidence_kind "calibrated".

    [bold]Examples[/bold]

    gts calibrate --model ./my-coconut --samplers gts,gaussian:1.0

    gts calibrate --model ./my-coconut --samplers gts --data held-out.jsonl --budgets 1,2,4,8,16

    gts calibrate --model cot-tiny --limit 300 --budgets 1,2,4,8,16 --out calibration.json

    gts calibrate --model ./my-panel --budgets 1,2,4,8,16,32
    """
    from latent.errors import InputError
    from latent.panel_file import read_panel
    from latent.zoo import find_panel, resolve_model
    from trainer.evaluation.calibration import (
        CalibrationRun,
        calibrate,
        parse_budgets,
        parse_samplers,
    )
    from trainer.evaluation.panel_calibration import calibrate_panel

    panel = find_panel(model)
    folder = resolve_model(model) if panel is None else panel
    place = _place(model, folder, out)
    if panel is not None:
        if samplers is not None:
            raise InputError("the members of a panel have their own samplers; leave --samplers out")
        # A calibration that does not fit any more is what this command replaces.
        loaded = load_panel(model, device, dtype, threads, is_calibrated=False)
        run = CalibrationRun((), data, parse_budgets(budgets), limit=limit, seed=seed, out=place)
        _print([("panel", one) for one in calibrate_panel(loaded, read_panel(panel), run)], place)
        return
    specs = None if samplers is None else parse_samplers(samplers)
    asked = parse_budgets(budgets)
    reasoner = load_reasoner(model, device, dtype, threads)
    chosen = specs or (reasoner.sampler().spec,)
    run = CalibrationRun(chosen, data, asked, limit=limit, seed=seed, out=place)
    _print([(one.sampler, one) for one in calibrate(reasoner, folder, run).fitted], place)


def _place(model: str, folder: Path, out: Path | None) -> Path:
    """The file to write; refused now, before hours of work, if it cannot be written."""
    from latent.calibration_file import FILE_NAME
    from latent.errors import InputError
    from latent.zoo import embedded_models, embedded_panels

    if out is None and model in {**embedded_models(), **embedded_panels()}:
        raise InputError(f"{model} is embedded and part of the installation; give --out FILE")
    place = out or folder / FILE_NAME
    place = place / FILE_NAME if place.is_dir() else place
    if not os.access(place.parent, os.W_OK):
        raise InputError(f"{place} cannot be written: {place.parent} is no folder to write to")
    return place


def _print(fitted: "Sequence[tuple[str, Calibration | PanelCalibration]]", place: Path) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("sampler", "vote"):
        table.add_column(title)
    for title in ("ECE", "ECE of the share", "questions", "budgets"):
        table.add_column(title, justify="right")
    for sampler, one in fitted:
        table.add_row(
            sampler,
            one.vote,
            f"{one.ece:.3f}",
            f"{one.share_ece:.3f}",
            str(one.questions),
            f"{one.budgets[0]}–{one.budgets[1]}",
        )
    console = Console()
    console.print(table)
    console.print(str(place), style="dim", soft_wrap=True, highlight=False)
