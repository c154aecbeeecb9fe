"""Low-rank adapters (LoRA, by PEFT) on a pretrained decoder: trained in place of all its weights."""

from collections.abc import Mapping

import torch
from peft import (
    LoraConfig,
    get_peft_model_state_dict,
    inject_adapter_in_model,
    set_peft_model_state_dict,
)
from peft.tuners.lora import LoraLayer
from torch import Tensor
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from latent.adapter import Adapter
from latent.errors import MismatchError

__all__ = ["add_adapter", "restore_adapter", "round_frozen_layers", "trained_adapter"]


def add_adapter(model: PreTrainedModel, rank: int) -> None:
    """Freeze a decoder and add A and B to each of its linear layers but the head; B begins at 0."""
    config = LoraConfig(
        r=rank, lora_alpha=rank, target_modules="all-linear", fan_in_fan_out=_is_transposed(model)
    )
    inject_adapter_in_model(config, model)


def round_frozen_layers(model: PreTrainedModel) -> None:
    """Hold the weights that an adapter adds to in bfloat16; autocast would round them in every step."""
    for module in model.modules():
        if isinstance(module, LoraLayer):
            module.get_base_layer().to(torch.bfloat16)


def trained_adapter(model: PreTrainedModel, rank: int) -> tuple[Adapter, dict[str, Tensor]]:
    """Settings and factors of what `add_adapter` added, as they are now."""
    factors = dict(get_peft_model_state_dict(model))
    modules = {name.split(".lora_")[0].rpartition(".")[2] for name in factors}
    return Adapter(rank, float(rank), tuple(sorted(modules)), _is_transposed(model)), factors


def restore_adapter(model: PreTrainedModel, tensors: Mapping[str, Tensor], source: str) -> None:
    """Start from an adapter that was trained before, of the same rank and layers."""
    own = {name: value.shape for name, value in get_peft_model_state_dict(model).items()}
    if own != {name: value.shape for name, value in tensors.items()}:
        raise MismatchError(
            f"the adapter in {source} has other layers or another rank; give its own --lora-rank",
            param="lora_rank",
        )
    set_peft_model_state_dict(model, {name: value.float() for name, value in tensors.items()})


def _is_transposed(model: PreTrainedModel) -> bool:
    """Whether linear layers hold their weights as (in, out)."""
    return any(isinstance(module, Conv1D) for module in model.modules())
