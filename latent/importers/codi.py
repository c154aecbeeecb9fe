"""CODI's checkpoints, on GPT-2 or LLaMA: LoRA merged into the decoder, the projection beside it.

Two spellings are read: the released one (`codi.base_model.model.*`, `prj.*`) and the converted one
(plain decoder keys, `projector.*`).
"""

import math
from dataclasses import dataclass
from pathlib import Path

import torch

from latent.answer_prefix import common_prefix
from latent.errors import InputError, MismatchError
from latent.format import Projection, PromptFormat, ReasonerFormat
from latent.importers.bases import Base, read_base
from latent.importers.checkpoints import Checkpoint, read_checkpoint
from latent.importers.decoders import plan_decoder, without_buffers
from latent.importers.folders import (
    Imported,
    check_out,
    check_thoughts,
    provenance,
    write_folder,
)
from latent.importers.keys import check_keys
from latent.importers.lora import lora_ranks, lora_shapes, merge_lora
from latent.reasoner import ProjectionMLP

__all__ = ["import_codi"]

# The released code uses ids and no names; the names are ours, so that every id decodes.
TOKENS = ("[PAD]", "<|bocot|>", "<|eocot|>")
TEMPLATE = "The answer is: {}"


@dataclass(frozen=True)
class Spelling:
    """How a file names the decoder and the layers of the projection."""

    decoder: str
    fc1: str
    fc2: str
    norm: str

    def of(self, name: str) -> str:
        """Give the file's name of a projection tensor: "norm.weight" → "prj.ln.weight"."""
        layer, _, kind = name.rpartition(".")
        return f"{getattr(self, layer)}.{kind}"


RELEASED = Spelling("codi.base_model.model.", fc1="prj.1", fc2="prj.3", norm="prj.ln")
CONVERTED = Spelling("", fc1="projector.1", fc2="projector.3", norm="projector.4")


def import_codi(
    checkpoint: Path,
    base: Path,
    out: Path,
    *,
    thoughts: int | None,
    alpha: float = 32.0,
    eos: int | None = None,
    overwrite: bool = False,
) -> Path:
    """Turn a CODI checkpoint into a reasoner folder."""
    count = check_thoughts(thoughts)
    if not (math.isfinite(alpha) and alpha > 0):
        raise InputError(f"--alpha must be a positive number, got {alpha}", param="alpha")
    check_out(out, overwrite=overwrite, inputs=(checkpoint, base))
    source, known = read_checkpoint(checkpoint), read_base(base)
    imported = _convert(source, known, alpha)
    rows = imported.model.config.vocab_size
    if eos is not None and not 0 <= eos < rows:
        raise InputError(f"{checkpoint}: --eos {eos} is not one of its {rows} tokens", param="eos")
    _, start, end = _add_tokens(known)
    assert imported.projection is not None
    format = ReasonerFormat(
        kind="codi",
        thoughts=count,
        prompt=PromptFormat(prefix_ids=known.bos_ids(), collapse_spaces=True),
        answer_template=TEMPLATE,
        answer_prefix_ids=common_prefix(known.tokenizer, TEMPLATE),
        eos_ids=known.eos_ids(eos),
        start_id=start,
        end_id=end,
        max_answer_tokens=16,
        projection=Projection(hidden=imported.projection.fc1.out_features),
        provenance=provenance(
            "codi",
            source,
            {"thoughts": count, "alpha": alpha, "eos": eos, "ranks": lora_ranks(source.tensors)},
        ),
    )
    return write_folder(out, format, imported)


def _convert(source: Checkpoint, base: Base, alpha: float) -> Imported:
    """Check every key of the file; merge, and fill the decoder and the projection."""
    found = without_buffers(source.tensors)
    spelling = RELEASED if any(name.startswith("codi.") for name in found) else CONVERTED
    weights = {
        name.removeprefix(spelling.decoder): tensor
        for name, tensor in found.items()
        if name.startswith(spelling.decoder)
    }
    plan = plan_decoder(base, weights)
    shapes = lora_shapes(plan.shapes, weights, plan.transposed)
    expected = {spelling.decoder + name: shape for name, shape in shapes.items()}
    projection = ProjectionMLP(plan.width, _hidden(spelling, found))
    names = {name: spelling.of(name) for name in projection.state_dict()}
    for name, tensor in projection.state_dict().items():
        expected[names[name]] = tuple(tensor.shape)
    check_keys(source.path, expected, found)
    projection.load_state_dict({ours: found[theirs] for ours, theirs in names.items()})
    own = {name: weights[name] for name in shapes}
    model = plan.fill(merge_lora(own, alpha, plan.transposed))
    return Imported(source.path, base, model, projection)


def _hidden(spelling: Spelling, found: dict[str, torch.Tensor]) -> int:
    """Read the projection's hidden size; anything will do for a file that has no first layer."""
    first = found.get(spelling.of("fc1.weight"), found.get(spelling.of("fc1.bias")))
    return int(first.shape[0]) if first is not None and first.ndim else 1


def _add_tokens(base: Base) -> tuple[int, ...]:
    """Name pad, bot and eot, which are the three ids after the base's vocabulary."""
    first = base.config.vocab_size
    ids = base.add_tokens(TOKENS)
    if ids != (first, first + 1, first + 2):
        raise MismatchError(
            f"{base.folder}: CODI's pad, bot and eot follow the vocabulary of config.json "
            f"({first} tokens), but in this tokenizer they would get ids {', '.join(map(str, ids))}",
            param="base",
        )
    base.tokenizer.pad_token = TOKENS[0]
    return ids
