"""CODI's checkpoints, on GPT-2 or LLaMA: LoRA merged into the decoder, the projection beside it.

Three spellings are read: the released one (`codi.base_model.model.*`, `prj.*`), the one without LoRA
(`codi.*`, `prj.*`), and the converted one (plain decoder keys, `projector.*`).
"""

import math
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from latent.answers import common_prefix
from latent.errors import InputError, MismatchError
from latent.format import AnswerReading, Projection, PromptFormat, ReasonerFormat
from latent.importers.bases import Base, check_eos, read_base
from latent.importers.checkpoints import Checkpoint, read_checkpoint
from latent.importers.decoders import plan_decoder, without_buffers
from latent.importers.folders import (
    Imported,
    check_out,
    check_thoughts,
    provenance,
    write_folder,
)
from latent.importers.keys import check_keys, check_kind, without
from latent.importers.lora import lora_ranks, lora_shapes, merge_lora
from latent.reasoner import ProjectionMLP

__all__ = ["import_codi"]

# The released code uses ids and no names; the names are ours, so that every id decodes.
TOKENS = ("[PAD]", "<|bocot|>", "<|eocot|>")
TEMPLATE = "The answer is: {}"
SIM_COT_MODULES = ("decoder", "pj_in", "pj_out")  # explain thoughts in training, compute no answer
SCRIPTS_ALPHA = 32.0


@dataclass(frozen=True)
class Spelling:
    """How a file names the decoder and the layers of the projection."""

    decoder: str
    fc1: str
    fc2: str
    norm: str

    def of(self, name: str) -> str:
        """Translate a projection tensor's name: "norm.weight" → "prj.ln.weight"."""
        layer, _, kind = name.rpartition(".")
        return f"{getattr(self, layer)}.{kind}"


RELEASED = Spelling("codi.base_model.model.", fc1="prj.1", fc2="prj.3", norm="prj.ln")
WITHOUT_LORA = replace(RELEASED, decoder="codi.")
CONVERTED = Spelling("", fc1="projector.1", fc2="projector.3", norm="projector.4")


def import_codi(
    checkpoint: Path,
    base: Path,
    out: Path,
    *,
    thoughts: int | None,
    alpha: float | None = None,
    eos: int | None = None,
    keep_eos: bool = False,
    dtype: torch.dtype = torch.float32,
    answers: AnswerReading = "last-number",
    overwrite: bool = False,
) -> Path:
    """Turn a CODI checkpoint into a reasoner folder that prompts, stops and reads as CODI does.

    `keep_eos` is for models trained with remove_eos=False: end-of-text stands before bot and after eot.
    """
    count = check_thoughts(thoughts)
    if alpha is not None and not (math.isfinite(alpha) and alpha > 0):
        raise InputError(f"--alpha must be a positive number, got {alpha}", param="alpha")
    check_out(out, overwrite=overwrite, inputs=(checkpoint, base))
    source, known = read_checkpoint(checkpoint), read_base(base)
    check_kind(source.path, source.tensors, "codi")
    ranks = lora_ranks(source.tensors)
    tensors, notes = without(source.tensors, SIM_COT_MODULES)
    if ranks and alpha is None:
        notes.append(
            f"LoRA's alpha is not in the file: {SCRIPTS_ALPHA:g} was assumed, as in CODI's scripts; "
            "give --alpha if it was trained with another"
        )
    alpha = SCRIPTS_ALPHA if alpha is None else alpha
    imported, projection, own_notes = _convert(source, tensors, known, alpha, dtype)
    check_eos(eos, imported.model.config.vocab_size, checkpoint)
    _, start, end = _add_tokens(known)
    end_of_text = known.eos_id(eos)
    kept = (end_of_text,) if keep_eos else ()
    before, after = known.added_around()
    options = {"thoughts": count, "alpha": alpha if ranks else None, "eos": eos, "ranks": ranks}
    format = ReasonerFormat(
        kind="codi",
        thoughts=count,
        prompt=PromptFormat(prefix_ids=before, suffix_ids=(*after, *kept), halve_spaces=True),
        answer_template=TEMPLATE,
        answer_prefix_ids=common_prefix(known.tokenizer, TEMPLATE),
        eos_ids=(end_of_text,),
        start_id=start,
        end_id=end,
        max_answer_tokens=16,
        projection=projection,
        provenance=provenance("codi", source, options, [*notes, *own_notes]),
        after_end_ids=kept,
        suppressed_ids=(end,),
        answers=answers,
    )
    return write_folder(out, format, imported)


def _convert(
    source: Checkpoint,
    tensors: dict[str, torch.Tensor],
    base: Base,
    alpha: float,
    dtype: torch.dtype,
) -> tuple[Imported, Projection | None, list[str]]:
    """Check every key of the file; merge LoRA, and fill the decoder and the projection."""
    found = without_buffers(tensors)
    spelling = next(s for s in (RELEASED, WITHOUT_LORA, CONVERTED) if _has(found, s.decoder))
    weights = {
        name.removeprefix(spelling.decoder): tensor
        for name, tensor in found.items()
        if name.startswith(spelling.decoder)
    }
    plan = plan_decoder(base, weights)
    notes = list(plan.notes)
    shapes = lora_shapes(plan.shapes, weights, plan.transposed)
    expected = {spelling.decoder + name: shape for name, shape in shapes.items()}
    projection, described = None, None
    # The converted spelling always has a projector: without one it is a plain decoder.
    if spelling is CONVERTED or _has(found, "prj."):
        has_norm = _has(found, spelling.norm) or spelling is CONVERTED
        described = Projection(_hidden(spelling, found), layer_norm=has_norm)
        projection = ProjectionMLP(plan.width, described.hidden, layer_norm=has_norm).to(dtype)
        names = {name: spelling.of(name) for name in projection.state_dict()}
        for name, tensor in projection.state_dict().items():
            expected[names[name]] = tuple(tensor.shape)
        if not has_norm:
            notes.append("the projection has no LayerNorm in the file (prj_no_ln)")
    else:
        notes.append("no projection in the file (use_prj=False): states are fed back as they are")
    check_keys(source.path, expected, found)
    if projection is not None:
        projection.load_state_dict({ours: found[theirs] for ours, theirs in names.items()})
    own = {name: plan.weights[name] for name in shapes}
    model = plan.fill(merge_lora(own, alpha, plan.transposed, dtype), dtype, source.path)
    return Imported(source.path, base, model, projection), described, notes


def _has(found: dict[str, torch.Tensor], prefix: str) -> bool:
    return any(name.startswith(prefix) for name in found)


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
