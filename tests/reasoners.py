"""Small random reasoners with a real trained tokenizer, for tests.

The initialisation is large (0.3): a decoder at the usual 0.02 repeats one token, and then every
equality holds for nothing.
"""

from functools import cache
from typing import Any
from unittest.mock import patch

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    LlamaConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

import latent.int8
from latent.attention import ATTENTION_NAME
from latent.format import Projection, PromptFormat, ReasonerFormat
from latent.reasoner import ProjectionMLP, Reasoner

EOS, START, END = "<|endoftext|>", "<|start-latent|>", "<|end-latent|>"
QUESTIONS = (
    "Ann has 3 apples and buys 4 more. How many apples does she have?",
    "A farmer sells 12 eggs a day for 7 days, then gives 5 away. How many eggs is that in all?",
    "Tom runs 2 miles.",
    "There are 40 children on a bus; at the first stop 13 leave it and 8 get on, at the second stop "
    "half of those on the bus leave. How many children are on the bus now?",
)


@cache
def tokenizer() -> PreTrainedTokenizerFast:
    """Train a byte-level BPE with single digits on a few hundred sentences."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=[EOS, START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    lines = [f"{q}\n### {n}\nThe answer is: {n}" for n in range(100) for q in QUESTIONS]
    bpe.train_from_iterator(lines, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token=EOS, pad_token=EOS)


def gpt2_config(**changes: Any) -> GPT2Config:
    """Make a GPT-2 of 3 layers, 4 heads and width 32."""
    settings = {"n_layer": 3, "n_head": 4, "n_embd": 32, "n_positions": 160, **changes}
    return GPT2Config(
        vocab_size=len(tokenizer()),
        bos_token_id=0,
        eos_token_id=0,
        initializer_range=0.3,
        **settings,
    )


def llama_config(**changes: Any) -> LlamaConfig:
    """Make a LLaMA of 3 layers, 4 query heads on 2 key heads, width 32."""
    settings = {
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "hidden_size": 32,
        "intermediate_size": 48,
        "max_position_embeddings": 160,
        **changes,
    }
    return LlamaConfig(vocab_size=len(tokenizer()), initializer_range=0.3, **settings)


CONFIGS = {"gpt2": gpt2_config, "llama": llama_config}


def random_model(config: PreTrainedConfig, dtype: torch.dtype, seed: int = 0) -> PreTrainedModel:
    """Make a decoder with random weights that serves lanes."""
    torch.manual_seed(seed)
    return AutoModelForCausalLM.from_config(config, attn_implementation=ATTENTION_NAME, dtype=dtype)


def reasoner_format(kind: str, **changes: Any) -> ReasonerFormat:
    """The format of a test reasoner of this kind."""
    tok = tokenizer()
    template = "The answer is: {}" if kind == "codi" else "### {}"
    encoded = [tok.encode(template.format(n), add_special_tokens=False) for n in (5, 71)]
    prefix = []
    for left, right in zip(*encoded, strict=False):
        if left != right:
            break
        prefix.append(left)
    values: dict[str, Any] = {
        "kind": kind,
        "thoughts": 0 if kind == "cot" else 3,
        "prompt": PromptFormat(
            collapse_spaces=kind == "codi", suffix="" if kind == "codi" else "\n"
        ),
        "answer_template": template,
        "answer_prefix_ids": tuple(prefix),
        "eos_ids": (tok.convert_tokens_to_ids(EOS),),
        "start_id": None if kind == "cot" else tok.convert_tokens_to_ids(START),
        "end_id": None if kind == "cot" else tok.convert_tokens_to_ids(END),
        "max_answer_tokens": 5,
        "max_reasoning_tokens": 8 if kind == "cot" else 0,
        "projection": Projection(hidden=24) if kind == "codi" else None,
    }
    return ReasonerFormat(**{**values, **changes})


def make_reasoner(
    kind: str = "coconut",
    architecture: str = "gpt2",
    *,
    dtype: torch.dtype = torch.float64,
    config: PreTrainedConfig | None = None,
    seed: int = 0,
    is_int8: bool = False,
    **changes: Any,
) -> Reasoner:
    """Make a random reasoner; `changes` go to its format. All layers are int8, if any, however small."""
    model = random_model(config or CONFIGS[architecture](), dtype, seed)
    projection = ProjectionMLP(model.config.hidden_size, 24).to(dtype) if kind == "codi" else None
    with patch.object(latent.int8, "_MIN_WIDTH", 0):
        return Reasoner(
            reasoner_format(kind, **changes),
            model,
            tokenizer(),
            projection,
            name=f"{kind}-{architecture}",
            is_int8=is_int8,
        )


def make_counting_reasoner(
    kind: str = "coconut", architecture: str = "gpt2", **changes: Any
) -> Reasoner:
    """Make a random reasoner that answers in digits, so that there is something to vote on.

    Only digits are loud in its vocabulary; 7, 8, 9 and 0 end the answer.
    """
    tok = tokenizer()
    digits = [tok.convert_tokens_to_ids(str(digit)) for digit in range(10)]
    reasoner = make_reasoner(
        kind,
        architecture,
        dtype=torch.float32,
        answer_prefix_ids=(),
        answer_template="{}",
        eos_ids=tuple(digits[digit] for digit in (7, 8, 9, 0)),
        **changes,
    )
    with torch.no_grad():
        head = reasoner._model.get_output_embeddings().weight
        quiet = torch.ones(len(head), dtype=torch.bool)
        quiet[digits] = False
        head[quiet] *= 0.1
    return reasoner


SIGNS = "123456789+-=\n"


class SpellingProjection(nn.Module):
    """Feedback that spells: each state becomes the embedding of one sign."""

    def __init__(self, rows: torch.Tensor) -> None:
        super().__init__()
        self.rows = rows  # (A, D) embeddings of SIGNS

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Choose by the state's first numbers: (…, D) → (…, D)."""
        return self.rows[hidden[..., : len(SIGNS)].argmax(-1)]


def make_spelling_reasoner(architecture: str = "llama", **changes: Any) -> Reasoner:
    """Make a random CODI whose 24 thoughts are signs of equations."""
    reasoner = make_reasoner("codi", architecture, **{"thoughts": 24, **changes})
    ids = [tokenizer().encode(sign, add_special_tokens=False)[0] for sign in SIGNS]
    reasoner._feedback = SpellingProjection(reasoner.embed(torch.tensor(ids)))
    return reasoner
