"""`gts import`: a released checkpoint and its base folder → a reasoner folder."""

from pathlib import Path
from typing import Annotated

import typer

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
Force = Annotated[bool, typer.Option("--force", help="Overwrite a folder that is not empty.")]


@app.command(
    epilog="Example: gts import coconut checkpoint_33 --base gpt2 --thoughts 6 --out coconut-gpt2"
)
def coconut(
    checkpoint: Checkpoint,
    base: Base,
    out: Out,
    thoughts: Thoughts = None,
    force: Force = False,
) -> None:
    """Import COCONUT's checkpoint_N, or SIM-CoT's variant of it."""
    from latent.importers import import_coconut

    _report(import_coconut(checkpoint, base, out, thoughts=thoughts, overwrite=force))


@app.command(
    epilog="Example: gts import codi codi-llama/ --base Llama-3.2-1B-Instruct --thoughts 6 "
    "--eos 128009 --out codi-llama-1b"
)
def codi(
    checkpoint: Checkpoint,
    base: Base,
    out: Out,
    thoughts: Thoughts = None,
    alpha: Annotated[float, typer.Option(help="LoRA's α; its rank is read from the file.")] = 32.0,
    eos: Annotated[
        int | None,
        typer.Option(
            help="The id that ends an answer; without it, eos_token_id of the base's config.json.",
            show_default=False,
        ),
    ] = None,
    force: Force = False,
) -> None:
    """Import CODI on GPT-2 or LLaMA: LoRA is merged, the projection kept beside the decoder."""
    from latent.importers import import_codi

    _report(
        import_codi(checkpoint, base, out, thoughts=thoughts, alpha=alpha, eos=eos, overwrite=force)
    )


@app.command(epilog="Example: gts import cot checkpoint_8 --base gpt2 --out cot-gpt2")
def cot(
    checkpoint: Checkpoint,
    base: Base,
    out: Out,
    max_reasoning_tokens: Annotated[
        int, typer.Option(help="How much text may come before the answer.")
    ] = 160,
    force: Force = False,
) -> None:
    """Import a plain chain-of-thought checkpoint, as a text reasoner."""
    from latent.importers import import_cot

    _report(
        import_cot(
            checkpoint, base, out, max_reasoning_tokens=max_reasoning_tokens, overwrite=force
        )
    )


def _report(folder: Path) -> None:
    """Load what was written, as a last check, and say what it is in one line."""
    from latent.store import load_reasoner

    reasoner = load_reasoner(folder)
    typer.echo(
        f"{folder}: {reasoner.format.kind}, {reasoner.parameter_count:,} parameters, "
        f"K = {reasoner.format.thoughts}, fingerprint {reasoner.fingerprint[:12]}"
    )
