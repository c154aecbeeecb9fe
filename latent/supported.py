"""Checks that a decoder has plain full attention, the only kind that lanes implement."""

from typing import Any, cast

from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

from latent.errors import UnsupportedError

__all__ = ["check_decoder"]


def check_decoder(model: PreTrainedModel) -> None:
    """Refuse, by name, a decoder whose attention or head is more than the lanes compute."""
    found = _unsupported_features(model.config, model)
    if found:
        name = getattr(model.config, "model_type", type(model).__name__)
        raise UnsupportedError(f"the decoder {name!r} cannot be served in lanes: it has {found}")


def _unsupported_features(config: PreTrainedConfig, model: PreTrainedModel) -> str:
    def has(name: str) -> Any:
        return getattr(config, name, None)

    layer_types = set(has("layer_types") or ()) - {"full_attention"}
    softcaps = [name for name in vars(config) if "softcap" in name and has(name)]
    is_sliding = has("sliding_window") and has("use_sliding_window") is not False
    checks = (
        (has("is_encoder_decoder") or has("add_cross_attention"), "cross-attention"),
        (has("alibi") or has("model_type") in ("bloom", "mpt"), "ALiBi position biases"),
        (is_sliding, f"a sliding window (sliding_window={has('sliding_window')})"),
        (layer_types, f"layers of type {', '.join(sorted(layer_types))}"),
        (has("layers_block_type") or getattr(model, "_is_stateful", False), "recurrent layers"),
        (softcaps, f"soft caps ({', '.join(softcaps)})"),
        (has("kv_lora_rank"), f"latent attention (kv_lora_rank={has('kv_lora_rank')})"),
        (_has_parameter(model, "sinks"), "attention sinks"),
        (_is_scaling(has("logit_scale")), f"scaled logits (logit_scale={has('logit_scale')})"),
        (_is_scaling(has("logits_scaling")), f"scaled logits ({has('logits_scaling')})"),
        (
            not getattr(model, "_supports_attention_backend", False),
            "its own attention code, outside transformers' AttentionInterface",
        ),
        (cast(Any, model).get_output_embeddings() is None, "no vocabulary head"),
    )
    return "; ".join(text for is_there, text in checks if is_there)


def _is_scaling(value: Any) -> bool:
    return value is not None and value != 1


def _has_parameter(model: nn.Module, name: str) -> bool:
    return any(key.rpartition(".")[2] == name for key, _ in model.named_parameters())
