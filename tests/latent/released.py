"""Small random modules shaped like the released ones, so that their state dicts have those keys."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    PreTrainedConfig,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)
from transformers.pytorch_utils import Conv1D

from tests.reasoners import EOS, gpt2_config, llama_config, tokenizer

RANK, HIDDEN = 3, 24
QUESTION = "Ann has 3  apples and buys 4 more. How many apples does she have?"
LORA_TARGETS = {
    "c_attn", "c_proj", "c_fc",
    "q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "down_proj", "gate_proj",
}  # fmt: skip
CONFIGS: dict[str, Callable[[], PreTrainedConfig]] = {
    "gpt2": gpt2_config,
    "llama": lambda: llama_config(bos_token_id=3, eos_token_id=0, tie_word_embeddings=True),
}


def plain_tokenizer() -> PreTrainedTokenizerFast:
    """Make the trained tokenizer as it is before anything is added for thoughts."""
    text = tokenizer().backend_tokenizer.to_str().replace("-latent|>", "-unused|>")
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(text), eos_token=EOS)


def with_template(
    tok: PreTrainedTokenizerFast, template: str, token: int
) -> PreTrainedTokenizerFast:
    """Let a tokenizer add this token where the template has {}: "{} $A" puts it first."""
    name = tok.convert_ids_to_tokens(token)
    tok.backend_tokenizer.post_processor = TemplateProcessing(
        single=template.replace("{}", name), special_tokens=[(name, token)]
    )
    return tok


def write_base(
    folder: Path, config: PreTrainedConfig, tok: PreTrainedTokenizerBase | None = None
) -> Path:
    """Write what an importer needs of a base: config and tokenizer."""
    config.save_pretrained(folder)
    (tok or plain_tokenizer()).save_pretrained(folder)
    return folder


def decoder(config: PreTrainedConfig, extra_rows: int, seed: int = 0) -> Any:
    """Make a random decoder, with rows for added tokens, whose biases and norms are random too."""
    sized = type(config).from_dict(
        {**config.to_dict(), "vocab_size": config.vocab_size + extra_rows}
    )
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(sized, dtype=torch.float32).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return model


class Coconut(nn.Module):
    """COCONUT's wrapper: the decoder, and its embedding under a second name."""

    def __init__(self, config: PreTrainedConfig, extra_rows: int = 3) -> None:
        super().__init__()
        self.base_causallm = decoder(config, extra_rows)
        self.embedding = self.base_causallm.get_input_embeddings()


class LoraLayer(nn.Module):
    """A linear layer with an adapter beside it, never merged."""

    def __init__(self, base_layer: nn.Module, alpha: float) -> None:
        super().__init__()
        self.base_layer = base_layer
        shape = base_layer.weight.shape
        size_out, size_in = reversed(shape) if isinstance(base_layer, Conv1D) else shape
        self.lora_A = nn.ModuleDict({"default": nn.Linear(size_in, RANK, bias=False)})
        self.lora_B = nn.ModuleDict({"default": nn.Linear(RANK, size_out, bias=False)})
        self.scale = alpha / RANK

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add the adapter's output to the layer's."""
        return self.base_layer(x) + self.scale * self.lora_B["default"](self.lora_A["default"](x))


class Codi(nn.Module):
    """CODI's module: a decoder inside two wrappers, adapted, and the projection `prj`.

    `use_lora`, `use_prj` and `prj_no_ln` are options of the released training.
    """

    def __init__(
        self,
        config: PreTrainedConfig,
        *,
        alpha: float = 2.0,
        extra_rows: int = 3,
        use_lora: bool = True,
        use_prj: bool = True,
        prj_no_ln: bool = False,
    ) -> None:
        super().__init__()
        model = decoder(config, extra_rows)
        self.codi = model
        if use_lora:
            for name, module in list(model.named_modules()):
                parent, _, last = name.rpartition(".")
                if last in LORA_TARGETS:
                    setattr(model.get_submodule(parent), last, LoraLayer(module, alpha))
            self.codi = nn.Module()
            self.codi.base_model = nn.Module()
            self.codi.base_model.model = model
        width = model.config.hidden_size
        if use_prj:
            self.prj = nn.Sequential(
                nn.Dropout(0.1), nn.Linear(width, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, width)
            )
            if not prj_no_ln:
                self.prj.add_module("ln", nn.LayerNorm(width))
                nn.init.normal_(self.prj.ln.weight)
                nn.init.normal_(self.prj.ln.bias)
        self.use_lora = use_lora
        self.eval()

    @property
    def decoder(self) -> Any:
        """The transformers model inside."""
        return self.codi.base_model.model if self.use_lora else self.codi

    @property
    def feedback(self) -> nn.Module:
        """What stands between a state and the next input."""
        return self.prj if hasattr(self, "prj") else nn.Identity()


@torch.no_grad()
def think(model: Any, feedback: nn.Module, prompt: tuple[int, ...], count: int) -> torch.Tensor:
    """Run the thought loop by whole passes over the modules; return what is fed back: (K, D)."""
    inputs = model.get_input_embeddings()(torch.tensor(prompt))[None]
    contexts = []
    for _ in range(count):
        hidden = model.base_model(inputs_embeds=inputs, use_cache=False).last_hidden_state[:, -1]
        contexts.append(feedback(hidden))
        inputs = torch.cat([inputs, contexts[-1][:, None]], dim=1)
    return torch.cat(contexts)


@torch.no_grad()
def states(model: Any, prompt: tuple[int, ...]) -> torch.Tensor:
    """Compute the hidden states after every layer: (layers + 1, P, D)."""
    output = model.base_model(torch.tensor([prompt]), output_hidden_states=True, use_cache=False)
    return torch.stack(output.hidden_states)[:, 0]
