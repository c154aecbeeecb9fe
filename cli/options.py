"""Options that several subcommands share, and the loading behind them."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from latent.reasoner import Reasoner
    from latent.reasoner_panel import ReasonerPanel

__all__ = [
    "Device",
    "Dtype",
    "Json",
    "Model",
    "ModelOrPanel",
    "Threads",
    "load_panel",
    "load_reasoner",
    "track",
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
Dtype = Annotated[str, typer.Option(help="auto, fp32, bf16, fp16 or fp64; auto is bf16 on CUDA.")]
Threads = Annotated[int | None, typer.Option(min=1, help="CPU threads; all cores by default.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def track(names: Iterable[str], verb: str) -> Iterator[str]:
    """Iterate, with a progress bar on standard error if that is a terminal."""
    from rich.console import Console
    from rich.progress import track as rich_track

    console = Console(stderr=True)
    items = list(names)
    if not console.is_terminal:
        return iter(items)
    return iter(rich_track(items, f"{verb} …", console=console, transient=True))


def load_reasoner(model: str, device: str, dtype: str, threads: int | None) -> "Reasoner":
    """Load what --model names, with the options that say where and how to compute."""
    import latent

    _set_threads(threads)
    return latent.load(model, device=device, dtype=dtype)


def load_panel(model: str, device: str, dtype: str, threads: int | None) -> "ReasonerPanel":
    """Load the panel that --model names."""
    import latent

    _set_threads(threads)
    return latent.load_panel(model, device=device, dtype=dtype)


def _set_threads(threads: int | None) -> None:
    import torch

    if threads is not None:
        torch.set_num_threads(threads)
