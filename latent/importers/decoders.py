"""A decoder of the base's architecture with the checkpoint's rows: sized, checked, then filled.

Where config.json ties the vocabulary head to the embedding, a checkpoint may leave one of the two
out. The released code ties them also where a file holds two different ones: what it reads last is
used for both.
"""

import re
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel
from transformers.pytorch_utils import Conv1D

from latent.errors import FormatError, MismatchError
from latent.importers.bases import Base
from latent.importers.keys import Shapes
from latent.store import check_finite
from latent.supported import check_decoder

__all__ = ["DecoderPlan", "plan_decoder", "without_buffers"]

# Causal masks that older transformers kept beside the weights.
_GPT2_BUFFERS = re.compile(r"(.+\.)?transformer\.h\.\d+\.attn\.(masked_)?bias")


@dataclass(frozen=True)
class DecoderPlan:
    """A decoder without weights yet, what the checkpoint has for it, and the shapes it must have."""

    model: PreTrainedModel
    weights: dict[str, torch.Tensor]
    shapes: Shapes
    embedding: str
    head: str
    notes: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """How many tokens the embedding has."""
        return int(self.model.config.vocab_size)

    @property
    def width(self) -> int:
        """D, the size of a hidden state."""
        return int(self.model.config.hidden_size)

    @property
    def transposed(self) -> frozenset[str]:
        """The modules that store a weight as (in, out): GPT-2's Conv1D."""
        modules = self.model.named_modules()
        return frozenset(name for name, module in modules if isinstance(module, Conv1D))

    def fill(
        self, weights: Mapping[str, torch.Tensor], dtype: torch.dtype, source: Path
    ) -> PreTrainedModel:
        """Put weights of exactly these shapes in place, in `dtype`."""
        state = {name: tensor.to(dtype) for name, tensor in weights.items()}
        check_finite(state, source)
        if self.embedding not in state:
            state[self.embedding] = state[self.head]
        if self.head not in state:
            state[self.head] = state[self.embedding]
        model: Any = self.model
        model.load_state_dict(state, assign=True)
        model.tie_weights()
        return self.model


def without_buffers(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Leave out the causal masks of older files."""
    return {name: t for name, t in tensors.items() if not _GPT2_BUFFERS.fullmatch(name)}


def plan_decoder(
    base: Base, weights: dict[str, torch.Tensor], *, is_embedding_last: bool = False
) -> DecoderPlan:
    """Size the base's decoder for these weights, which are named as transformers names them.

    `is_embedding_last` says that the released code reads the embedding after the head.
    """
    config = deepcopy(base.config)
    layers = getattr(config, "num_hidden_layers", None)
    if type(layers) is int and layers > len(weights):  # or its modules would be made one by one
        raise MismatchError(
            f"{base.folder / 'config.json'} has {layers} layers, and the checkpoint {len(weights)} "
            "tensors",
            param="base",
        )
    model: Any = _without_weights(base, config)
    check_decoder(model)
    embedding = _name_of(model, model.get_input_embeddings())
    head = _name_of(model, model.get_output_embeddings())
    is_tied = bool(getattr(config, "tie_word_embeddings", False))
    rows = weights.get(embedding, weights.get(head) if is_tied else None)
    if rows is not None and rows.ndim == 2:
        config.vocab_size = rows.shape[0]
    notes: tuple[str, ...] = ()
    if is_tied and _differ(weights.get(embedding), weights.get(head)):
        kept, dropped = (embedding, head) if is_embedding_last else (head, embedding)
        weights = {**weights, dropped: weights[kept]}
        notes = (
            f"{dropped} differs from {kept}, but config.json ties them: {kept} is used for both, "
            "as in the released code",
        )
    model = _without_weights(base, config)
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    if is_tied:
        # Either of the two says all; with neither, it is the embedding that is missing.
        spare = embedding if head in weights else head
        if spare not in weights:
            del shapes[spare]
    return DecoderPlan(model, weights, shapes, embedding, head, notes)


def _without_weights(base: Base, config: PreTrainedConfig) -> PreTrainedModel:
    auto: Any = AutoModelForCausalLM
    try:
        with torch.device("meta"):
            model: PreTrainedModel = auto.from_config(
                config, dtype=torch.float32, trust_remote_code=False
            )
    except Exception as error:  # transformers raises whatever its parts raise
        first_line = str(error).strip().partition("\n")[0]
        raise FormatError(
            f"{base.folder / 'config.json'} does not describe a decoder: {first_line}", param="base"
        ) from error
    return model


def _name_of(model: PreTrainedModel, module: Any) -> str:
    return next(f"{name}.weight" for name, found in model.named_modules() if found is module)


def _differ(left: torch.Tensor | None, right: torch.Tensor | None) -> bool:
    if left is None or right is None or left.shape != right.shape:
        return False
    return not torch.equal(left.float(), right.float())
