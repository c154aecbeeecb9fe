"""Options that several subcommands share, and the loading behind them."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from latent.reasoner import Reasoner

__all__ = ["Device", "Dtype", "Json", "Model", "Threads", "load_reasoner", "track"]


def _embedded() -> list[str]:
    from latent.zoo import embedded_models

    return list(embedded_models())


Model = Annotated[
    str,
    typer.Option(
        "--model",
        "-m",
        help="An embedded reasoner's name, or a reasoner folder.",
        autocompletion=_embedded,
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
    import torch

    import latent

    if threads is not None:
        torch.set_num_threads(threads)
    return latent.load(model, device=device, dtype=dtype)
