"""Builds the decoder of a backbone run: a small one from scratch, or a pretrained one."""

import math
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from latent.errors import NotFoundError
from trainer.backbone.config import Architecture
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


def set_dropout(model: PreTrainedModel, rate: float) -> None:
    """Set the rate of every dropout layer, and the attention implementation that is fastest with it."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = rate
    # With dropout on attention weights, scaled_dot_product_attention takes a slow path.
    model.set_attn_implementation("eager" if rate else "sdpa")


def load_pretrained(folder: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """Load a decoder and its tokenizer, and add the latent markers if they are missing."""
    if not (folder / "config.json").is_file():
        raise NotFoundError(f"no config.json in {folder}; --init wants a transformers folder")
    tokenizer: PreTrainedTokenizerFast = AutoTokenizer.from_pretrained(folder)  # type: ignore[assignment]
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(folder, dtype="float32")
    tokenizer.add_tokens([START_LATENT, END_LATENT], special_tokens=True)
    if len(tokenizer) > model.config.vocab_size:
        model.resize_token_embeddings(len(tokenizer))
    return model, tokenizer
