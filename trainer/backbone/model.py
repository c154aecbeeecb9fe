"""Builds the decoder of a backbone run: a small one from scratch, or a pretrained one."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from latent.adapter import find_base, package_base
from latent.errors import InputError, NotFoundError
from latent.folders import read_format, weights_digest
from latent.format import Base
from latent.merging import load_base, load_factors, merge_adapter
from trainer.backbone.adapter import add_adapter, restore_adapter, round_frozen_layers
from trainer.backbone.config import Architecture, BackboneConfig
from trainer.data.tokenizer import END_LATENT, START_LATENT


def build_decoder(shape: Architecture, tokens: int, eos: int) -> PreTrainedModel:
    """Create a decoder with random weights and a vocabulary of `tokens`."""
    if shape.family == "gpt2":
        model = GPT2LMHeadModel(  # type: ignore[no-untyped-call]
            GPT2Config(
                vocab_size=tokens,
                n_positions=shape.positions,
                n_embd=shape.width,
                n_layer=shape.layers,
                n_head=shape.heads,
                embd_pdrop=shape.dropout,
                attn_pdrop=shape.dropout,
                resid_pdrop=shape.dropout,
                # The same function as GPT-2's gelu_new, as one kernel.
                activation_function="gelu_pytorch_tanh",
                bos_token_id=eos,
                eos_token_id=eos,
            )
        )
        # With sinusoids attention learns "the next number" far earlier than with random positions.
        model.transformer.wpe.weight.data.copy_(sinusoids(shape.positions, shape.width))
        return model
    return LlamaForCausalLM(  # type: ignore[no-untyped-call]
        LlamaConfig(
            vocab_size=tokens,
            max_position_embeddings=shape.positions,
            hidden_size=shape.width,
            intermediate_size=shape.mlp_width,
            num_hidden_layers=shape.layers,
            num_attention_heads=shape.heads,
            num_key_value_heads=shape.kv_heads,
            tie_word_embeddings=True,
            bos_token_id=eos,
            eos_token_id=eos,
        )
    )


def sinusoids(positions: int, width: int, size: float = 0.02) -> Tensor:
    """Sinusoidal position embeddings (positions, width) with a root mean square of `size`."""
    place = torch.arange(positions, dtype=torch.float64)[:, None]
    pitch = torch.logspace(0, -math.log10(positions), width // 2, dtype=torch.float64)
    waves = torch.cat((torch.sin(place * pitch), torch.cos(place * pitch)), dim=1)
    return (waves * size * math.sqrt(2)).float()


def set_dropout(model: PreTrainedModel, rate: float, *, is_reduced: bool = False) -> None:
    """Set the rate of every dropout layer, and the attention implementation that is fastest with it.

    `is_reduced`: products are computed in bfloat16.
    """
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = rate
    # With dropout on attention weights scaled_dot_product_attention takes a slow path, and on a CPU
    # its backward pass in bfloat16 took a fifth of a step for prompts of 50 tokens.
    model.set_attn_implementation("eager" if rate or is_reduced else "sdpa")


@dataclass(frozen=True)
class Pretrained:
    """A decoder to start from."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerFast
    base: Base  # what an adapter of it names
    factors: Mapping[str, Tensor] | None = None  # of an adapter to go on from


def load_pretrained(init: str, *, with_adapter: bool = False) -> Pretrained:
    """Load a transformers folder, a reasoner with a base, or the GGUF file of `package:NAME`.

    An adapter in the folder is merged, or with `with_adapter` returned apart.
    """
    kind, _, package = init.partition(":")
    folder = Path(init)
    auto_tokenizer: Any = AutoTokenizer
    if kind == "package":
        base = package_base(package)
        path = find_base(folder, base)
        read: Any = AutoConfig.from_pretrained(path.parent, gguf_file=path.name)
        # The file is quantised, and not the decoder that is made of it.
        kept = {k: v for k, v in read.to_dict().items() if k != "quantization_config"}
        tokenizer = auto_tokenizer.from_pretrained(path.parent, gguf_file=path.name)
        return Pretrained(_build(type(read)(**kept), load_base(folder, base)), tokenizer, base)
    if not (folder / "config.json").is_file():
        raise NotFoundError(
            f"no config.json in {folder}; --init wants a transformers folder or package:NAME",
            param="init",
        )
    tokenizer = auto_tokenizer.from_pretrained(folder)
    format = read_format(folder) if (folder / "reasoner.json").is_file() else None
    if format is not None and format.base is not None:
        weights = load_base(folder, format.base)
        factors = load_factors(folder) if with_adapter else None
        weights = weights if with_adapter else merge_adapter(folder, weights)
        model = _build(AutoConfig.from_pretrained(folder), weights)
        return Pretrained(model, tokenizer, format.base, factors)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="float32")
    return Pretrained(model, tokenizer, Base(weights_digest(folder), folder=str(folder.resolve())))


def start_pretrained(config: BackboneConfig, init: str) -> Pretrained:
    """Load a decoder to train, with tokens for the markers of thoughts; a rank adds an adapter."""
    rank = config.lora_rank
    start = load_pretrained(init, with_adapter=rank > 0)
    model, tokenizer = start.model, start.tokenizer
    if config.recipe != "cot" and config.markers is None:
        tokenizer.add_tokens([START_LATENT, END_LATENT], special_tokens=True)
    has_new_rows = len(tokenizer) > model.config.vocab_size
    if rank and has_new_rows:
        raise InputError(
            f"{init} has no tokens for the markers of thoughts, and an adapter adds none; name two "
            "tokens that it does not use (markers), or train all weights (lora_rank 0)",
            param="lora_rank",
        )
    if has_new_rows:
        model.resize_token_embeddings(len(tokenizer))
    if rank:
        add_adapter(model, rank)
        if config.precision == "bf16":
            round_frozen_layers(model)
        if start.factors is not None:
            restore_adapter(model, start.factors, init)
    return start


def _build(config: Any, weights: Mapping[str, Tensor]) -> PreTrainedModel:
    decoder: Any = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    model: PreTrainedModel
    model = decoder.from_pretrained(None, config=config, state_dict=weights, dtype="float32")
    return model
