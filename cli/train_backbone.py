"""`gts train backbone`: trains a reasoner from scratch or from a pretrained decoder."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from trainer.backbone.config import BackboneConfig

app = typer.Typer(
    help="Train a reasoner: coconut, codi or cot.", no_args_is_help=True, add_completion=False
)

Out = Annotated[Path, typer.Option(help="Folder of the run; an interrupted run continues.")]
Data = Annotated[str, typer.Option(help="embedded[:split], a JSONL file or GSM8K-Aug lines.")]
Validation = Annotated[str, typer.Option(help="Data for the measure during training.")]
Test = Annotated[str, typer.Option(help="Data for the final measure; empty: none.")]
Init = Annotated[str | None, typer.Option(help="A transformers folder to start from.")]
StageSteps = Annotated[str, typer.Option(help="Steps of each stage, with commas.")]
Minutes = Annotated[
    float | None, typer.Option(help="Scale the steps to about this time; decided once per --out.")
]
Width = Annotated[int, typer.Option(help="Width of the decoder.")]
Layers = Annotated[int, typer.Option(help="Layers of the decoder.")]
Heads = Annotated[int, typer.Option(help="Attention heads.")]
Batch = Annotated[int, typer.Option(help="Problems in a batch.")]
Rate = Annotated[float, typer.Option("--lr", help="Highest learning rate of each stage.")]
Optimizer = Annotated[str, typer.Option(help="muon (from scratch) or adamw (pretrained).")]
SupervisedSteps = Annotated[
    int,
    typer.Option(help="Teach the thoughts up to so many equations, two thoughts each; 0: none."),
]
SettleSteps = Annotated[int, typer.Option(help="Last steps, with dropout; 0: none.")]
Problems = Annotated[int, typer.Option(help="How many rows of the data to use.")]
Seed = Annotated[int, typer.Option(help="Decides weights, batches and dropout.")]
Threads = Annotated[int, typer.Option(min=1, help="CPU threads.")]


@app.command()
def coconut(
    out: Out,
    data: Data = "embedded:train",
    validation: Validation = "embedded:validation",
    test: Test = "embedded:test",
    init: Init = None,
    stage_steps: StageSteps = "1400,700,700,700,2400",
    settle_steps: SettleSteps = 500,
    thoughts_per_step: Annotated[int, typer.Option(help="Thoughts for a replaced step.")] = 2,
    thoughts: Annotated[bool, typer.Option(help="--no-thoughts trains the control.")] = True,
    supervised_steps: SupervisedSteps = 0,
    minutes: Minutes = None,
    width: Width = 128,
    layers: Layers = 4,
    heads: Heads = 4,
    dropout: Annotated[float, typer.Option(help="Dropout of the decoder.")] = 0.1,
    batch: Batch = 32,
    optimizer: Optimizer = "muon",
    lr: Rate = 4e-3,
    problems: Problems = 150_000,
    seed: Seed = 0,
    threads: Threads = 1,
) -> None:
    """Text, then thoughts in place of ever more steps, then thoughts only."""
    from trainer.backbone.config import BackboneConfig
    from trainer.backbone.model import Architecture

    _train(
        BackboneConfig(
            recipe="coconut",
            stage_steps=_counts(stage_steps),
            architecture=Architecture("gpt2", width, layers, heads, dropout=dropout),
            init=init,
            data=data,
            validation=validation,
            test=test or None,
            train_problems=problems,
            settle_steps=settle_steps,
            thoughts_per_step=thoughts_per_step,
            with_thoughts=thoughts,
            supervised_steps=supervised_steps,
            batch=batch,
            optimizer=optimizer,
            learning_rate=lr,
            seed=seed,
        ),
        out,
        minutes,
        threads,
    )


@app.command()
def codi(
    out: Out,
    data: Data = "embedded:train",
    validation: Validation = "embedded:validation",
    test: Test = "embedded:test",
    init: Init = None,
    stage_steps: StageSteps = "1300,800,1600",
    settle_steps: SettleSteps = 500,
    thoughts: Annotated[int, typer.Option(help="Thoughts before the answer.")] = 6,
    projection: Annotated[int, typer.Option(help="Hidden width of the projection.")] = 256,
    gamma: Annotated[float, typer.Option(help="Weight of the distillation.")] = 1.0,
    supervised_steps: SupervisedSteps = 0,
    minutes: Minutes = None,
    width: Width = 128,
    layers: Layers = 4,
    heads: Heads = 4,
    kv_heads: Annotated[int, typer.Option(help="Key-value heads.")] = 2,
    mlp_width: Annotated[int, typer.Option(help="Width of the SwiGLU layer.")] = 344,
    dropout: Annotated[float, typer.Option(help="Dropout of what the projection reads.")] = 0.1,
    batch: Batch = 32,
    optimizer: Optimizer = "muon",
    lr: Rate = 3e-3,
    problems: Problems = 150_000,
    seed: Seed = 0,
    threads: Threads = 1,
) -> None:
    """A teacher that reads the steps and a student that thinks, in one model."""
    from trainer.backbone.config import BackboneConfig
    from trainer.backbone.model import Architecture

    _train(
        BackboneConfig(
            recipe="codi",
            stage_steps=_counts(stage_steps),
            architecture=Architecture("llama", width, layers, heads, kv_heads, mlp_width, dropout),
            init=init,
            data=data,
            validation=validation,
            test=test or None,
            train_problems=problems,
            settle_steps=settle_steps,
            codi_thoughts=thoughts,
            projection_hidden=projection,
            gamma=gamma,
            supervised_steps=supervised_steps,
            batch=batch,
            optimizer=optimizer,
            learning_rate=lr,
            seed=seed,
        ),
        out,
        minutes,
        threads,
    )


@app.command()
def cot(
    out: Out,
    data: Data = "embedded:train",
    validation: Validation = "embedded:validation",
    test: Test = "embedded:test",
    init: Init = None,
    steps: Annotated[int, typer.Option(help="Training steps.")] = 1400,
    minutes: Minutes = None,
    width: Width = 128,
    layers: Layers = 4,
    heads: Heads = 4,
    dropout: Annotated[float, typer.Option(help="Dropout of the decoder.")] = 0.1,
    batch: Batch = 32,
    optimizer: Optimizer = "muon",
    lr: Rate = 4e-3,
    problems: Problems = 150_000,
    seed: Seed = 0,
    threads: Threads = 1,
) -> None:
    """Plain chain of thought in text: the baseline."""
    from trainer.backbone.config import BackboneConfig
    from trainer.backbone.model import Architecture

    _train(
        BackboneConfig(
            recipe="cot",
            stage_steps=(steps,),
            architecture=Architecture("gpt2", width, layers, heads, dropout=dropout),
            init=init,
            data=data,
            validation=validation,
            test=test or None,
            train_problems=problems,
            batch=batch,
            optimizer=optimizer,
            learning_rate=lr,
            seed=seed,
        ),
        out,
        minutes,
        threads,
    )


def _train(config: "BackboneConfig", out: Path, minutes: float | None, threads: int) -> None:
    import torch
    from transformers.utils import logging

    from trainer.backbone.examine import describe
    from trainer.backbone.run import BackboneRun
    from trainer.runs.output_folder import claimed

    torch.set_num_threads(threads)
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    arguments = sys.argv[sys.argv.index(config.recipe) :]
    with claimed(out, "a backbone's training"):
        run = BackboneRun(config, out, shlex.join(["gts", "train", "backbone", *arguments]))
        if minutes is not None:
            run.fit_to(minutes)
        final = run.run()
    typer.echo(f"{out / 'reasoner'}: {describe(final)}")


def _counts(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a list of numbers with commas") from None


if __name__ == "__main__":
    app()
