"""COCONUT's `checkpoint_N`, SIM-CoT's variant of it, and the plain CoT checkpoint it starts from."""

from pathlib import Path

import torch

from latent.answers import common_prefix
from latent.errors import FormatError, InputError
from latent.format import AnswerReading, PromptFormat, ReasonerFormat
from latent.importers.bases import Base, check_eos, read_base
from latent.importers.checkpoints import Checkpoint, read_checkpoint
from latent.importers.decoders import DecoderPlan, plan_decoder, without_buffers
from latent.importers.folders import (
    Imported,
    check_out,
    check_thoughts,
    provenance,
    write_folder,
)
from latent.importers.keys import check_keys, check_kind, without

__all__ = ["import_coconut", "import_cot"]

TOKENS = ("<|start-latent|>", "<|end-latent|>", "<|latent|>")
TEMPLATE = "### {}"
PREFIX = "base_causallm."
ALIAS = "embedding.weight"  # of the token embedding: the wrapper's own name for it
SIM_COT_MODULE = "expainable_llm"  # (sic) explains thoughts in training, and computes no answer


def import_coconut(
    checkpoint: Path,
    base: Path,
    out: Path,
    *,
    thoughts: int | None,
    eos: int | None = None,
    dtype: torch.dtype = torch.float32,
    answers: AnswerReading = "last-number",
    overwrite: bool = False,
) -> Path:
    """Turn a COCONUT checkpoint into a reasoner folder that prompts, stops and reads as COCONUT does."""
    count = check_thoughts(thoughts)
    check_out(out, overwrite=overwrite, inputs=(checkpoint, base))
    source, known = read_checkpoint(checkpoint), read_base(base)
    check_kind(source.path, source.tensors, "coconut")
    weights, notes = without(source.tensors, (SIM_COT_MODULE,))
    plan = _plan(source, known, weights, PREFIX)
    check_eos(eos, plan.rows, checkpoint)
    start, end, _ = known.add_tokens(TOKENS)
    options = {"thoughts": count, **({} if eos is None else {"eos": eos})}
    format = ReasonerFormat(
        kind="coconut",
        thoughts=count,
        prompt=_prompt(known),
        answer_template=TEMPLATE,
        answer_prefix_ids=common_prefix(known.tokenizer, TEMPLATE),
        eos_ids=(known.eos_id(eos),),
        start_id=start,
        end_id=end,
        max_answer_tokens=16,
        provenance=provenance("coconut", source, options, [*notes, *plan.notes]),
        ignore_first_eos=True,
        answers=answers,
    )
    return _finish(out, format, plan, known, source, dtype)


def import_cot(
    checkpoint: Path,
    base: Path,
    out: Path,
    *,
    max_reasoning_tokens: int = 160,
    dtype: torch.dtype = torch.float32,
    answers: AnswerReading = "last-number",
    overwrite: bool = False,
) -> Path:
    """Turn a plain CoT checkpoint into the folder of a text reasoner."""
    if max_reasoning_tokens < 1:
        raise InputError(
            f"--max-reasoning-tokens must be at least 1, got {max_reasoning_tokens}",
            param="max_reasoning_tokens",
        )
    check_out(out, overwrite=overwrite, inputs=(checkpoint, base))
    source, known = read_checkpoint(checkpoint), read_base(base)
    check_kind(source.path, source.tensors, "cot")
    plan = _plan(source, known, source.tensors, "")
    answer_prefix = common_prefix(known.tokenizer, TEMPLATE)
    if not answer_prefix:
        raise FormatError(
            f"{base}: its tokenizer has no token that {TEMPLATE!r} begins with whatever the number, "
            "so where the reasoning ends cannot be seen",
            param="base",
        )
    options = {"max_reasoning_tokens": max_reasoning_tokens}
    format = ReasonerFormat(
        kind="cot",
        thoughts=0,
        prompt=_prompt(known),
        answer_template=TEMPLATE,
        answer_prefix_ids=answer_prefix,
        eos_ids=known.generation_eos_ids(),
        max_answer_tokens=16,
        max_reasoning_tokens=max_reasoning_tokens,
        provenance=provenance("cot", source, options, plan.notes),
        answers=answers,
    )
    return _finish(out, format, plan, known, source, dtype)


def _prompt(base: Base) -> PromptFormat:
    """The question as it is and a newline, between what the tokenizer adds."""
    before, after = base.added_around()
    return PromptFormat(prefix_ids=before, strip=False, suffix="\n", suffix_ids=after)


def _plan(
    source: Checkpoint, base: Base, tensors: dict[str, torch.Tensor], prefix: str
) -> DecoderPlan:
    """Size the decoder and check every key of the file against it."""
    found = without_buffers(tensors)
    own = {
        name.removeprefix(prefix): tensor
        for name, tensor in found.items()
        if name.startswith(prefix) and name != ALIAS
    }
    plan = plan_decoder(base, own, is_embedding_last=ALIAS in found)
    expected = {prefix + name: shape for name, shape in plan.shapes.items()}
    differences = []
    if ALIAS in found:
        expected[ALIAS] = (plan.rows, plan.width)
        embedding = own.get(plan.embedding)
        if embedding is not None and not torch.equal(found[ALIAS].float(), embedding.float()):
            differences = [f"{ALIAS} differs from {prefix}{plan.embedding}, whose alias it is"]
    check_keys(source.path, expected, found, differences=differences)
    return plan


def _finish(
    out: Path,
    format: ReasonerFormat,
    plan: DecoderPlan,
    base: Base,
    source: Checkpoint,
    dtype: torch.dtype,
) -> Path:
    if base.tokenizer.eos_token is not None:
        base.tokenizer.pad_token = base.tokenizer.eos_token
    model = plan.fill(plan.weights, dtype, source.path)
    return write_folder(out, format, Imported(source.path, base, model))
