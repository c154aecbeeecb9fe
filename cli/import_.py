"""`gts import`: converts a released checkpoint and its base folder into a reasoner folder."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import torch

__all__ = ["app"]

app = typer.Typer(
    help="Turn a released checkpoint into a reasoner folder.",
    no_args_is_help=True,
)

Checkpoint = Annotated[
    Path,
    typer.Argument(
        help="A torch.save or safetensors file, or a folder with one (sharded or not).",
        show_default=False,
    ),
]
Base = Annotated[
    Path,
    typer.Option(
        help="The transformers folder it was trained from: config.json and tokenizer files.",
        show_default=False,
    ),
]
Out = Annotated[Path, typer.Option(help="The reasoner folder to write.", show_default=False)]
Thoughts = Annotated[
    int | None,
    typer.Option(
        help="K, the thoughts per question it was trained with; no checkpoint says it. Required.",
        show_default=False,
    ),
]
Eos = Annotated[
    int | None,
    typer.Option(
        help="The id that ends an answer; without it, the tokenizer's own.", show_default=False
    ),
]
Dtype = Annotated[
    str, typer.Option(help="What the weights are stored in: fp32, bf16, fp16 or fp64.")
]
Answers = Annotated[
    str,
    typer.Option(
        help="How answers are read: last-number, as the reference code does, or strict: only "
        "behind the answer prefix."
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite a folder that is not empty.")]


@app.command(
    epilog="Example: gts import coconut checkpoint_33 --base gpt2 --thoughts 6 --out coconut-gpt2"
)
def coconut(
    checkpoint: Checkpoint,
    base: Base,
    out: Out,
    thoughts: Thoughts = None,
    eos: Eos = None,
    dtype: Dtype = "fp32",
    answers: Answers = "last-number",
    force: Force = False,
) -> None:
    """Import COCONUT's checkpoint_N, or SIM-CoT's variant of it."""
    from latent.format import parse_reading
    from latent.importers import import_coconut

    _report(
        import_coconut(
            checkpoint,
            base,
            out,
            thoughts=thoughts,
            eos=eos,
            dtype=_stored_dtype(dtype),
            answers=parse_reading(answers),
            overwrite=force,
        )
    )


@app.command(
    epilog="Example: gts import codi codi-llama/ --base Llama-3.2-1B-Instruct --thoughts 6 "
    "--eos 128009 --out codi-llama-1b"
)
def codi(
    checkpoint: Checkpoint,
    base: Base,
    out: Out,
    thoughts: Thoughts = None,
    alpha: Annotated[
        float | None,
        typer.Option(
            help="LoRA's α, which no file holds; 32, as in CODI's scripts, is assumed and reported.",
            show_default=False,
        ),
    ] = None,
    eos: Eos = None,
    keep_eos: Annotated[
        bool,
        typer.Option(
            "--keep-eos",
            help="It was trained with remove_eos=False: end-of-text before bot and after eot.",
        ),
    ] = False,
    dtype: Dtype = "fp32",
    answers: Answers = "last-number",
    force: Force = False,
) -> None:
    """Import CODI on GPT-2 or LLaMA: LoRA is merged, the projection kept beside the decoder."""
    from latent.format import parse_reading
    from latent.importers import import_codi

    _report(
        import_codi(
            checkpoint,
            base,
            out,
            thoughts=thoughts,
            alpha=alpha,
            eos=eos,
            keep_eos=keep_eos,
            dtype=_stored_dtype(dtype),
            answers=parse_reading(answers),
            overwrite=force,
        )
    )


@app.command(epilog="Example: gts import cot checkpoint_8 --base gpt2 --out cot-gpt2")
def cot(
    checkpoint: Checkpoint,
    base: Base,
    out: Out,
    max_reasoning_tokens: Annotated[
        int, typer.Option(help="How much text may come before the answer.")
    ] = 160,
    dtype: Dtype = "fp32",
    answers: Answers = "last-number",
    force: Force = False,
) -> None:
    """Import a plain chain-of-thought checkpoint, as a text reasoner."""
    from latent.format import parse_reading
    from latent.importers import import_cot

    _report(
        import_cot(
            checkpoint,
            base,
            out,
            max_reasoning_tokens=max_reasoning_tokens,
            dtype=_stored_dtype(dtype),
            answers=parse_reading(answers),
            overwrite=force,
        )
    )


def _stored_dtype(text: str) -> "torch.dtype":
    """Parse --dtype; auto is fp32. Storing needs no CPU that can compute in it."""
    from latent.device import parse_dtype
    from latent.errors import InputError

    if text == "int8":
        raise InputError(
            "weights are not stored in int8; import them in fp32 and serve them with --dtype int8",
            param="dtype",
        )
    return parse_dtype("fp32" if text == "auto" else text)


def _report(folder: Path) -> None:
    """Load what was written, as a last check; print what was assumed or ignored, then what it is."""
    from latent.store import load_reasoner

    reasoner = load_reasoner(folder)
    for note in reasoner.format.provenance.get("notes", []):
        typer.echo(f"note: {note}")
    typer.echo(
        f"{folder}: {reasoner.format.kind}, {reasoner.parameter_count:,} parameters, "
        f"K = {reasoner.format.thoughts}, fingerprint {reasoner.fingerprint[:12]}"
    )
