"""The attention function of decoders, registered with transformers: causal over prompts, or from lanes.

What lanes attend to is the cache's (`latent.lanes`, `latent.static_lanes`): this only calls it.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import nn
from transformers import AttentionInterface

from latent.errors import UnsupportedError

__all__ = ["ATTENTION_NAME", "Attending", "LaneKV", "lane_attention"]

ATTENTION_NAME = "gts_lanes"

# Keyword arguments of decoders that need no handling: positions and masks are in the cache.
_UNDERSTOOD = frozenset({"position_ids", "cache_position", "use_cache", "is_causal"})


@dataclass(frozen=True)
class LaneKV:
    """Passed to the attention function in place of the keys: the cache and the layer number."""

    cache: "Attending"
    layer: int


class Attending(Protocol):
    """What lanes attend with."""

    def attend(self, layer: int, query: torch.Tensor, scaling: float) -> torch.Tensor:
        """Attend from every lane (T, query heads, d) to its prompt and its suffix: same shape."""
        ...


def lane_attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor | LaneKV,
    value: torch.Tensor | None,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **extra: Any,
) -> tuple[torch.Tensor, None]:
    """Attention for transformers, causal over prompts or from lanes; returns (B, L, heads, d)."""
    strange = [
        name for name, value in extra.items() if name not in _UNDERSTOOD and value is not None
    ]
    if strange or dropout or attention_mask is not None:
        what = ", ".join(strange) or ("dropout" if dropout else "an attention mask")
        raise UnsupportedError(
            f"{type(module).__name__} asks for attention with {what}; lanes have none"
        )
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    if isinstance(key, LaneKV):
        out = key.cache.attend(key.layer, query[0].transpose(0, 1), scaling)
        return out[None], None
    assert value is not None
    # Prompts are padded on the right: no real token sees padding, so causality is the whole mask.
    prompt = F.scaled_dot_product_attention(
        query, key, value, is_causal=True, scale=scaling, enable_gqa=query.shape[1] != key.shape[1]
    )
    return torch.as_tensor(prompt).transpose(1, 2), None


AttentionInterface.register(ATTENTION_NAME, lane_attention)
