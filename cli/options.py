"""Options that several subcommands share, and the loading behind them."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from latent.reasoner import Reasoner
    from latent.samplers import Sampler

__all__ = ["Device", "Dtype", "Json", "Model", "Threads", "load_model_and_sampler"]


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


def load_model_and_sampler(
    model: str, sampler: str | None, device: str, dtype: str, threads: int | None
) -> tuple["Reasoner", "Sampler"]:
    """Load what --model and --sampler name; without --sampler, what suits the kind of reasoner."""
    import torch

    from latent.device import resolve_device, resolve_dtype
    from latent.folders import read_format
    from latent.specs import SamplerSpec
    from latent.store import load_reasoner, load_sampler
    from latent.zoo import resolve_model, resolve_sampler

    if threads is not None:
        torch.set_num_threads(threads)
    folder = resolve_model(model)
    spec = SamplerSpec.parse(sampler or ("gts" if read_format(folder).is_latent else "token"))
    where = resolve_device(device)
    reasoner = load_reasoner(
        folder, device=str(where), dtype=resolve_dtype(dtype, where), name=folder.resolve().name
    )
    reasoner.check_sampler(spec)
    return reasoner, load_sampler(reasoner, spec, resolve_sampler(folder, spec))
