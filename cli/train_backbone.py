"""`gts train backbone`: trains a reasoner from scratch or from a pretrained decoder.

The options of its commands are fields of BackboneConfig and Architecture: types, defaults and help
texts come from there.
"""

import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from latent.errors import InputError
from trainer.backbone.config import RECIPE_DEFAULTS, Architecture, BackboneConfig, recipe_config
from trainer.runs.settings import descriptions

app = typer.Typer(
    help="Train a reasoner: coconut, codi or cot.", no_args_is_help=True, add_completion=False
)

# Options, and the field that each sets.
_DATA = {name: name for name in ("data", "redraw_numbers", "distractors", "exclude")}
_DATA |= {name: name for name in ("validation", "test", "validation_problems", "max_tokens")}
_DATA |= {name: name for name in ("init", "lora_rank", "bare_steps")}
_LISTS = ("data", "exclude")  # options that may be repeated
_STAGES = {name: name for name in ("stage_steps", "settle_steps", "supervised_steps")}
_TRAINING = {name: name for name in ("width", "layers", "heads", "dropout", "batch", "optimizer")}
_TRAINING["precision"] = "precision"
_TRAINING |= {"lr": "learning_rate", "problems": "train_problems", "seed": "seed"}
_TRAINING |= {name: name for name in ("log_every", "examine_every", "checkpoint_every")}
_COCONUT = {"thoughts_per_step": "thoughts_per_step", "thoughts": "with_thoughts"}
_COCONUT["markers"] = "markers"
_CODI = {"thoughts": "codi_thoughts", "projection": "projection_hidden", "gamma": "gamma"}
_CODI |= {name: name for name in ("spelled_thoughts", "calculator", "markers", "review_share")}
_LLAMA = {"kv_heads": "kv_heads", "mlp_width": "mlp_width"}

# Options of every command that do not decide the result.
_RUN = {
    "out": Annotated[Path, typer.Option(help="Folder of the run; an interrupted run continues.")],
    "minutes": Annotated[
        float | None,
        typer.Option(help="Scale the steps to about this time; decided once per --out."),
    ],
    "threads": Annotated[int, typer.Option(min=1, help="CPU threads.")],
}


def _command(recipe: str, options: Mapping[str, str]) -> Callable[..., None]:
    """Command that trains a recipe, with `options` for fields of its settings."""

    def command(out: Path, minutes: float | None, threads: int, **values: Any) -> None:
        settings = {field: _parsed(field, values[name]) for name, field in options.items()}
        try:
            config = recipe_config(recipe, **settings)
        except InputError as error:  # names a field; the user knows its option
            name = next((n for n, field in options.items() if field == error.param), error.param)
            message = str(error).replace(str(error.param), str(name), 1)
            raise InputError(message, param=name) from None
        _train(config, out, minutes, threads)

    defaults: dict[str, Any] = {
        field.name: field.default
        for kind in (BackboneConfig, Architecture)
        for field in fields(kind)
    }
    defaults |= RECIPE_DEFAULTS[recipe]
    hints = {**get_type_hints(BackboneConfig), **get_type_hints(Architecture)}
    texts = {**descriptions(BackboneConfig), **descriptions(Architecture)}
    parameters: dict[str, Any] = {"out": Parameter.empty, "minutes": None, "threads": 1}
    annotations = dict(_RUN)
    for name, field in options.items():
        default = defaults[field]
        kind, text = (int, "Training steps.") if name == "steps" else (hints[field], texts[field])
        if field in _LISTS:
            default, kind = list(default), list[str]
        elif isinstance(default, tuple):
            default, kind = ",".join(map(str, default)), int if kind is int else str
        annotations[name] = Annotated[kind, typer.Option(help=text)]
        parameters[name] = default
    command.__annotations__ = {**annotations, "return": None}
    command.__signature__ = Signature(  # type: ignore[attr-defined]
        [
            Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotations[name])
            for name, default in parameters.items()
        ]
    )
    return command


def _parsed(field: str, value: Any) -> Any:
    if field == "stage_steps":
        try:
            return tuple(int(part) for part in str(value).split(","))
        except ValueError:
            raise typer.BadParameter(f"{value!r} is not a list of numbers with commas") from None
    if field in _LISTS:
        return tuple(value)
    return None if value == "" else value  # an empty --test


def _train(config: BackboneConfig, out: Path, minutes: float | None, threads: int) -> None:
    import torch
    from transformers.utils import logging

    from trainer.backbone.run import BackboneRun
    from trainer.backbone.thinking import describe
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


app.command("coconut", help="Text, then thoughts in place of ever more steps, then thoughts only.")(
    _command("coconut", {**_DATA, **_STAGES, **_COCONUT, **_TRAINING})
)
app.command("codi", help="A teacher that reads the steps and a student that thinks, in one model.")(
    _command("codi", {**_DATA, **_STAGES, **_CODI, **_LLAMA, **_TRAINING})
)
app.command("cot", help="Plain chain of thought in text: the baseline.")(
    _command("cot", {**_DATA, "calculator": "calculator", "steps": "stage_steps", **_TRAINING})
)


if __name__ == "__main__":
    app()
