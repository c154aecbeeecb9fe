"""The folder that an import writes: its place, its provenance, and the checks before it is written."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from latent.errors import FormatError, InputError
from latent.format import ReasonerFormat
from latent.importers.bases import Base
from latent.importers.checkpoints import Checkpoint
from latent.reasoner import ProjectionMLP
from latent.store import save_reasoner

__all__ = ["Imported", "check_out", "check_thoughts", "provenance", "write_folder"]


@dataclass(frozen=True)
class Imported:
    """A decoder and projection filled from a checkpoint, and the base they belong to."""

    source: Path
    base: Base
    model: PreTrainedModel
    projection: ProjectionMLP | None = None


def check_out(out: Path, *, overwrite: bool, inputs: tuple[Path, Path]) -> None:
    """Refuse a place that holds something, unless it may be overwritten; the inputs never may."""
    if out.exists() and not out.is_dir():
        raise InputError(f"--out {out} is a file; give a folder", param="out")
    for path in inputs:
        if out.resolve() in (path.resolve(), path.resolve().parent):
            raise InputError(
                f"--out {out} holds the input {path}; give another folder", param="out"
            )
    if not overwrite and out.is_dir() and any(out.iterdir()):
        raise InputError(
            f"--out {out} is not empty; give another folder, or --force to overwrite it",
            param="out",
        )


def check_thoughts(thoughts: int | None) -> int:
    """Refuse to guess K: no released checkpoint says it."""
    if thoughts is None:
        raise InputError(
            "the checkpoint does not say how many thoughts it was trained with; give --thoughts K "
            "(6 in COCONUT, in CODI and in SIM-CoT on CODI; 10 in SIM-CoT on COCONUT)",
            param="thoughts",
        )
    if thoughts < 1:
        raise InputError(f"--thoughts must be at least 1, got {thoughts}", param="thoughts")
    return thoughts


def provenance(
    importer: str, checkpoint: Checkpoint, options: dict[str, Any], notes: Sequence[str]
) -> dict[str, Any]:
    """Record what was imported, how, and what was assumed or ignored (`notes`).

    It has no date, so that a second import writes the same bytes.
    """
    known = {"importer": importer, "source": checkpoint.digests(), "options": options}
    return {**known, "notes": list(notes)} if notes else known


def write_folder(out: Path, format: ReasonerFormat, imported: Imported) -> Path:
    """Check that the format fits the decoder, then write the folder in place of an older one."""
    imported.base.check_rows(imported.model.config.vocab_size, format.token_ids, imported.source)
    window = getattr(imported.model.config, "max_position_embeddings", None)
    if window is not None and format.suffix_capacity >= window:
        raise InputError(
            f"thoughts and answer take up to {format.suffix_capacity} tokens, and the base's context "
            f"window has {window}; give fewer thoughts or reasoning tokens"
        )
    try:
        save_reasoner(out, format, imported.model, imported.base.tokenizer, imported.projection)
    except UnicodeEncodeError as error:
        base = imported.base.folder
        raise FormatError(
            f"{base}: its tokenizer holds text that is not Unicode: {error}"
        ) from error
    except OSError as error:
        raise InputError(f"--out {out} cannot be written: {error}", param="out") from error
    return out
