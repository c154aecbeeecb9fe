"""`gts train sampler`: trains a GTS for a frozen reasoner; under torchrun, on several ranks."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

if TYPE_CHECKING:
    from trainer.runs.settings import Settings

__all__ = ["SettingsHelp", "sampler"]


class SettingsHelp(TyperCommand):
    """Appends every setting with its description to `--help`."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Read the settings only now: other commands need not import them."""
        rows = (f"{name}={value}: {text}" for name, value, text in self.settings().rows())
        self.epilog = "\n\n".join(("Settings for --set, with their defaults:", *rows))
        super().format_help(ctx, formatter)

    def settings(self) -> "Settings":
        """The default settings of the command."""
        from trainer.sampler.config import PRESETS

        return PRESETS["default"]


app = typer.Typer(add_completion=False)


@app.command(cls=SettingsHelp)
def sampler(
    model: Annotated[str, typer.Option(help="An embedded reasoner's name, or a reasoner folder.")],
    out: Annotated[Path, typer.Option(help="Folder of the run; an interrupted run continues.")],
    data: Annotated[
        str, typer.Option(help="embedded, or a file: JSON lines, GSM8K-Aug lines or MAWPS CSV.")
    ] = "embedded",
    problems: Annotated[
        int | None,
        typer.Option(min=1, help="How many of the questions to use (embedded: 20000)."),
    ] = None,
    preset: Annotated[str, typer.Option(help="default (ours) or paper (the literal recipe).")] = (
        "default"
    ),
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="name=value, a setting of those below; repeatable."),
    ] = None,
    show_config: Annotated[
        bool, typer.Option("--show-config", help="Print the configuration, and do nothing.")
    ] = False,
    checkpoint_every: Annotated[int, typer.Option(min=1, help="Steps between checkpoints.")] = 25,
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:N.")] = "cpu",
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads.")] = None,
) -> None:
    """Train a sampler: sample, score, update, and keep the best by validation pass@N.

    Example: gts train sampler --model coconut-tiny --out runs/gts --set steps=500 --set alpha=0

    Ranks: torchrun --nproc-per-node 2 --no-python gts train sampler --model coconut-tiny --out runs/gts
    """
    from latent.errors import InputError
    from trainer.sampler.config import PRESETS

    if preset not in PRESETS:
        raise InputError(f"unknown preset {preset!r}; use {' or '.join(PRESETS)}", param="preset")
    config = PRESETS[preset].changed(settings or [])
    if show_config:
        for name, value, _ in config.rows():
            typer.echo(f"{name}={value}")
        return
    from trainer.sampler.run import SamplerRun, run_sampler

    run_sampler(
        SamplerRun(
            model=model,
            data=data,
            problems=problems,
            out=out,
            config=config,
            checkpoint_every=checkpoint_every,
            device=device,
            threads=threads,
        )
    )
