"""The root of `gts`: mounts the subcommands and turns errors into one line and an exit code."""

import sys
from importlib.metadata import version
from typing import Annotated

import click
import typer

from cli import (
    bench,
    calibrate,
    chat,
    compare,
    diagnose,
    evaluate,
    import_,
    models,
    serve,
    solve,
    train,
)
from latent.errors import GtsError

__all__ = ["app", "main"]

app = typer.Typer(
    name="gts",
    help="Latent reasoning with inference-time scaling: draw N trajectories of thought, and vote.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.command("solve")(solve.solve_command)
app.command("chat")(chat.chat_command)
app.command("diagnose")(diagnose.diagnose_command)
app.command("serve")(serve.serve_command)
app.command("models")(models.models_command)
app.command("bench")(bench.bench_command)
app.command("calibrate")(calibrate.calibrate_command)
app.command("evaluate")(evaluate.evaluate_command)
app.command("compare")(compare.compare_command)
app.add_typer(import_.app, name="import")
app.add_typer(train.app, name="train")


def _version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"gts {version('gts')}")
        raise typer.Exit


@app.callback()
def _root(
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run `gts`: exit code 2 and one clear line for anything the user can put right."""
    try:
        app()
    except GtsError as error:
        where = f" ({error.param})" if error.param else ""
        typer.echo(f"gts: {error}{where}", err=True)
        sys.exit(2)
    except (BrokenPipeError, KeyboardInterrupt, click.Abort):
        sys.exit(130)
