"""Options that several subcommands share, and the loading behind them."""

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from latent.errors import InputError

if TYPE_CHECKING:
    from latent.reasoner import Reasoner
    from latent.reasoner_panel import ReasonerPanel
    from latent.solved import Solved

__all__ = [
    "Device",
    "Dtype",
    "Json",
    "Model",
    "ModelOrPanel",
    "Threads",
    "Token",
    "Url",
    "check_place",
    "load_panel",
    "load_reasoner",
    "load_solver",
    "read_question",
    "typed_options",
]


def _embedded() -> list[str]:
    from latent.zoo import embedded_models

    return list(embedded_models())


def _embedded_with_panels() -> list[str]:
    from latent.zoo import embedded_panels

    return [*_embedded(), *embedded_panels()]


Model = Annotated[
    str,
    typer.Option(
        "--model",
        "-m",
        help="An embedded reasoner's name, or a reasoner folder.",
        autocompletion=_embedded,
    ),
]
ModelOrPanel = Annotated[
    str,
    typer.Option(
        "--model",
        "-m",
        help="An embedded reasoner's or panel's name, or a folder of one.",
        autocompletion=_embedded_with_panels,
    ),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:0.")]
Dtype = Annotated[
    str,
    typer.Option(
        help="auto (int8 on a CPU, fp32 there for small decoders, bf16 on CUDA), fp32, bf16, fp16, "
        "fp64, or int8 on a CPU."
    ),
]
Threads = Annotated[int | None, typer.Option(min=1, help="CPU threads; all cores by default.")]
Url = Annotated[
    str | None,
    typer.Option(
        help="Ask this server (gts serve) instead of loading a model. --model is then a name "
        "that it serves; without it, the server's default.",
    ),
]
Token = Annotated[
    str | None, typer.Option(envvar="GTS_TOKEN", help="The server's bearer token, for --url.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def load_reasoner(model: str, device: str, dtype: str, threads: int | None) -> "Reasoner":
    """Load what --model names, with the options that say where and how to compute."""
    import latent

    with _without_collections():
        _set_threads(threads)
        return latent.load(model, device=device, dtype=dtype)


def load_panel(
    model: str, device: str, dtype: str, threads: int | None, *, is_calibrated: bool = True
) -> "ReasonerPanel":
    """Load the panel that --model names."""
    import latent

    with _without_collections():
        _set_threads(threads)
        return latent.load_panel(model, device=device, dtype=dtype, is_calibrated=is_calibrated)


def load_solver(
    model: str, sampler: str | None, device: str, dtype: str, threads: int | None
) -> "Callable[..., Solved]":
    """Load the reasoner or the panel that --model names; return its method `solve`."""
    from latent.zoo import find_panel

    if find_panel(model) is None:
        return load_reasoner(model, device, dtype, threads).solve
    if sampler is not None:
        raise InputError("the members of a panel have their own samplers; leave --sampler out")
    panel = load_panel(model, device, dtype, threads)

    def solve(question: str, **options: Any) -> "Solved":
        # Every member's first trajectory is its deterministic one.
        own = {"sampler", "include_deterministic"}
        return panel.solve(question, **{k: v for k, v in options.items() if k not in own})

    return solve


def typed_options(context: typer.Context) -> set[str]:
    """The parameters that were given on the command line."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {name for name, source in sources.items() if source and source.name == "COMMANDLINE"}


def check_place(given: set[str], *, is_remote: bool) -> None:
    """Refuse options that mean nothing where the question is solved."""
    if is_remote and (local := sorted(given & {"device", "dtype", "threads"})):
        raise InputError(f"--{local[0]} is the server's to choose; leave it out with --url")
    if not is_remote and "token" in given:
        raise InputError("--token goes with --url")


def read_question(question: str) -> str:
    """The question, or standard input for a dash."""
    if question != "-":
        return question
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise InputError(f"standard input is not UTF-8 text: {error.reason}") from error


@contextmanager
def _without_collections() -> Iterator[None]:
    """Pause garbage collection, and leave what is made meanwhile out of later collections.

    Importing torch and transformers makes 600,000 objects that stay; going through them again and
    again, and once more at the end of the process, took a quarter of the time of a cold `gts solve`.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _set_threads(threads: int | None) -> None:
    import torch

    if threads is not None:
        torch.set_num_threads(threads)
