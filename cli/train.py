"""`gts train`: backbones, samplers and verifiers."""

import typer

from cli import train_backbone, train_sampler, train_verifier

__all__ = ["app"]

app = typer.Typer(help="Train a reasoner, or a sampler or verifier for one.", no_args_is_help=True)
app.command("sampler", cls=train_sampler.SettingsHelp)(train_sampler.sampler)
app.command("verifier", cls=train_verifier.VerifierHelp)(train_verifier.verifier)
app.add_typer(train_backbone.app, name="backbone")
