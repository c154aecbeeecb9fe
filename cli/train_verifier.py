"""`gts train verifier`: trains what scores the trajectories of a frozen reasoner for the vote."""

import sys
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.options import Json, Model, Threads
from cli.train_sampler import SettingsHelp

if TYPE_CHECKING:
    from rich.table import Table

    from trainer.runs.settings import Settings

__all__ = ["VerifierHelp", "verifier"]


class VerifierHelp(SettingsHelp):
    """Appends the settings of verifier training to `--help`."""

    def settings(self) -> "Settings":
        """The default settings of the command."""
        from trainer.verifier.config import VerifierConfig

        return VerifierConfig()


def verifier(
    model: Model,
    data: Annotated[
        str, typer.Option(help="embedded, or a file: JSON lines, GSM8K-Aug lines or MAWPS CSV.")
    ] = "embedded",
    problems: Annotated[
        int | None,
        typer.Option(min=1, help="How many of the questions to use (embedded: 40000)."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder to write. Without it: verifiers/default in the reasoner's folder, or of an "
            "embedded reasoner the user's own folder, where the vote finds it.",
            show_default=False,
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="name=value, a setting of those below; repeatable."),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:0.")] = "cpu",
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Train a verifier: draw trajectories, label them, fit, and measure its vote on other questions.

    The trajectories are those of the reasoner's default sampler. Afterwards gts solve --vote verifier
    and the server use it.

    Example: gts train verifier --model coconut-tiny

    Own data: gts train verifier --model ./my-coconut --data train.jsonl --set epochs=10
    """
    from trainer.verifier.config import VerifierConfig
    from trainer.verifier.run import VerifierRun, run_verifier

    config = VerifierConfig().changed(settings or [])
    run = VerifierRun(
        model=model,
        data=data,
        problems=problems,
        out=out,
        config=config,
        device=device,
        threads=threads,
    )
    with redirect_stdout(sys.stderr) if as_json else nullcontext():
        result = run_verifier(run)
    if as_json:
        import json

        shown = {"out": str(result.out), "results": result.results}
        typer.echo(json.dumps(shown, indent=2, ensure_ascii=False))
        return
    from rich.console import Console

    console = Console(soft_wrap=True, highlight=False)
    console.print(_table(result.results))
    console.print(result.verdict)
    console.print(f"verifier in {result.out}")


def _table(results: dict[str, Any]) -> "Table":
    """Accuracy of the votes by budget, in percent."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    titles = ("trajectories", "majority", "confidence", "verifier", "verifier − majority", "pass@N")
    for title in titles:
        table.add_column(title, justify="right")
    for budget, gap in results["against_majority"].items():
        votes = (results[name][budget]["value"] for name in ("majority", "confidence", "verifier"))
        value, low, high = (100 * gap[name] for name in ("value", "low", "high"))
        table.add_row(
            budget,
            *(f"{100 * vote:.1f}" for vote in votes),
            f"{value:+.1f} [{low:+.1f}, {high:+.1f}]",
            f"{100 * results['pass'][budget]['value']:.1f}",
        )
    return table
