"""`gts compare`: compares several evaluations in one report."""

from pathlib import Path
from typing import Annotated

import typer


def compare_command(
    folders: Annotated[
        list[Path], typer.Argument(help="Folders that gts evaluate wrote, two or more.")
    ],
    out: Annotated[Path, typer.Option(help="Folder for the report.")],
) -> None:
    """Compare evaluations of several reasoners, datasets or samplers in one report.

    [bold]Example[/bold]

    gts compare runs/coconut runs/codi runs/cot --out runs/compared
    """
    from trainer.evaluation.report.compare import write_comparison

    typer.echo(write_comparison(folders, out))
