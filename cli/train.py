"""`gts train`: backbones and samplers."""

import typer

from cli import train_backbone, train_sampler

__all__ = ["app"]

app = typer.Typer(help="Train a sampler for a reasoner, or a reasoner.", no_args_is_help=True)
app.command("sampler", cls=train_sampler.SettingsHelp)(train_sampler.sampler)
app.add_typer(train_backbone.app, name="backbone")
