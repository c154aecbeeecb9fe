"""Lanes: the N trajectories of a question along the sequence axis, sharing its prompt's keys and values.

The decoder sees one sequence of T lanes (all lanes of all questions, packed) at their own positions.
`LaneCache` keeps each question's prompt once and a small suffix per lane; `lane_attention`, registered
with transformers, is one dense product against the shared prompt, a small one against the lane's own
suffix, and one softmax over both. Positions and masks live in the cache, so transformers builds none.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from transformers import AttentionInterface
from transformers.cache_utils import Cache

from latent.dropout import DropoutMasks
from latent.errors import UnsupportedError

__all__ = ["ATTENTION_NAME", "LaneCache", "Prefix", "PromptCache", "lane_attention", "row_block"]

ATTENTION_NAME = "gts_lanes"

# Matrix libraries use other kernels for products of few rows, and element-wise loops treat what does
# not fill a vector apart; both round differently. With one thread neither reaches whole blocks of 16
# rows; with more, `reproducibility` measures it.
_CPU_ROW_BLOCK = 16

# Keyword arguments of decoders that need no handling: positions and masks are in the cache.
_UNDERSTOOD = frozenset({"position_ids", "cache_position", "use_cache", "is_causal"})


def row_block(device: torch.device) -> int:
    """Rows that passes are padded to a multiple of; 1 on a GPU, where equal bits are not promised."""
    return _CPU_ROW_BLOCK if device.type == "cpu" else 1


@dataclass(frozen=True)
class Prefix:
    """A prefilled prompt: keys and values of every layer, padded to its bucket, and its last state."""

    kv: torch.Tensor  # (layers, 2, heads, bucket, d)
    length: int
    hidden: torch.Tensor  # (D,) after the final norm, at the last prompt token

    @property
    def bucket(self) -> int:
        """The padded length."""
        return self.kv.shape[3]

    @property
    def nbytes(self) -> int:
        """Bytes held, whatever the number of lanes."""
        return self.kv.nbytes + self.hidden.nbytes


@dataclass(frozen=True)
class _Group:
    """Neighbouring questions with equally many lanes: dense blocks for the attention."""

    questions: slice
    lanes: slice
    shape: tuple[int, int]  # (questions R, lanes N of each)


@dataclass(frozen=True)
class _LaneKV:
    """Passed to the attention function in place of the keys: the cache and the layer number."""

    cache: "LaneCache"
    layer: int


class PromptCache(Cache):
    """Records a batch of prompts' keys and values as the decoder computes them."""

    def __init__(self) -> None:
        super().__init__(layers=[])
        self.kv: list[torch.Tensor] = []

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        layer_idx: int,
        *_: Any,
        **__: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Record one layer: (R, heads, bucket, d) each."""
        self.kv.append(torch.stack((key_states, value_states)))
        return key_states, value_states

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Nothing comes before a prompt."""
        return 0


class LaneCache(Cache):
    """Keys and values of T lanes: every prompt once, and a suffix of `capacity` slots per lane."""

    def __init__(self, prefixes: Sequence[Prefix], counts: Sequence[int], capacity: int) -> None:
        super().__init__(layers=[])
        self.groups = _group(counts)
        self.counts = tuple(counts)
        device = prefixes[0].kv.device
        self._row_block = row_block(device)
        lengths = torch.tensor([prefix.length for prefix in prefixes])
        self.prompt_kv = torch.stack([prefix.kv for prefix in prefixes], dim=2)
        layers, _, _, heads, self.bucket, d = self.prompt_kv.shape
        lanes = sum(counts)
        self.suffix_kv = self.prompt_kv.new_zeros(layers, 2, lanes, heads, capacity, d)
        self.prompt_bias = _padding_bias(lengths, self.prompt_kv)
        self.lane_lengths = torch.repeat_interleave(lengths, torch.tensor(counts)).to(
            device
        )  # (T,)
        self.masks: DropoutMasks | None = None
        self.slot: int | torch.Tensor = 0
        self.used = 0
        self.suffix_bias: torch.Tensor | None = None

    def at(self, slot: int | torch.Tensor) -> torch.Tensor:
        """Set the suffix slot of the next pass, one for all lanes or (T,); return positions (1, T)."""
        self.slot = slot
        if isinstance(slot, int):
            self.used, self.suffix_bias = slot + 1, None
        else:
            self.used = int(slot.max()) + 1
            hidden = torch.arange(self.used, device=slot.device) > slot[:, None]  # (T, used)
            self.suffix_bias = torch.zeros_like(hidden, dtype=self.prompt_kv.dtype).masked_fill(
                hidden, float("-inf")
            )
        return (self.lane_lengths + slot)[None]

    def update(  # type: ignore[override]
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        layer_idx: int,
        *_: Any,
        **__: Any,
    ) -> tuple[_LaneKV, None]:
        """Write one position of every lane: (1, heads, T, d) each."""
        for which, states in enumerate((key_states, value_states)):
            suffix = self.suffix_kv[layer_idx, which]
            if isinstance(self.slot, int):
                suffix[:, :, self.slot] = states[0].transpose(0, 1)
            else:
                rows = torch.arange(len(self.slot), device=suffix.device)
                suffix[rows, :, self.slot] = states[0].transpose(0, 1)
        return _LaneKV(self, layer_idx), None

    def keep(self, questions: Sequence[int], lanes: Sequence[int], counts: Sequence[int]) -> None:
        """Keep only these questions and lanes, which must be in groups of equal counts."""
        if len(questions) < len(self.counts) or list(questions) != sorted(questions):
            rows = torch.tensor(questions, device=self.prompt_kv.device)
            self.prompt_kv = self.prompt_kv.index_select(2, rows)
            if self.prompt_bias is not None:
                self.prompt_bias = self.prompt_bias.index_select(0, rows)
        columns = torch.tensor(lanes, device=self.prompt_kv.device)
        self.suffix_kv = self.suffix_kv.index_select(2, columns)
        self.lane_lengths = self.lane_lengths.index_select(0, columns)
        self.groups, self.counts = _group(counts), tuple(counts)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Positions are always passed in, so this is never the source of one."""
        return self.bucket + self.used

    def attend(self, layer: int, query: torch.Tensor, scaling: float) -> torch.Tensor:
        """Attend from every lane (T, query heads, d) to its prompt and its suffix: same shape."""
        parts = [self._attend_group(layer, query, scaling, group) for group in self.groups]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _attend_group(
        self, layer: int, query: torch.Tensor, scaling: float, group: _Group
    ) -> torch.Tensor:
        prompt_k, prompt_v = self.prompt_kv[layer, :, group.questions].unbind()  # (R, H, P, d)
        suffix_kv = self.suffix_kv[layer, :, group.lanes, :, : self.used]
        suffix_k, suffix_v = suffix_kv.unbind()  # (R·N, H, s, d)
        (r, n), (_, h, p, d) = group.shape, prompt_k.shape
        own = (query[group.lanes] * scaling).view(r * n, h, -1, d)  # (R·N, H, g, d)
        g = own.shape[2]  # query heads that share a key head; they go along with the lanes
        dense = own.view(r, n, h, g, d).transpose(1, 2).reshape(r, h, n * g, d)
        to_prompt = self._times_prompt(dense, prompt_k.mT).view(r, h, n, g, p)
        to_suffix = _times(own, suffix_k.mT).view(r, n, h, g, -1).transpose(1, 2)
        if self.prompt_bias is not None:
            to_prompt = to_prompt + self.prompt_bias[group.questions]
        if self.suffix_bias is not None:
            to_suffix = to_suffix + self.suffix_bias[group.lanes].view(r, 1, n, 1, -1)
        scores = torch.cat((to_prompt, to_suffix), dim=-1)  # (R, H, N, g, P + s)
        weights = scores.softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32))
        weights = weights.to(scores.dtype)
        if self.masks is not None and "attention" in self.masks.sites:
            mask = self._attention_mask(layer, h * g, group)
            weights = weights * mask.view(r, n, h, g, -1).transpose(1, 2)
        on_prompt = weights[..., :p].reshape(r, h, n * g, p)
        from_prompt = self._times_prompt(on_prompt, prompt_v).view(r, h, n, g, d)
        from_suffix = _times(weights[..., p:].transpose(1, 2).reshape(r * n, h, g, -1), suffix_v)
        together = from_prompt.transpose(1, 2).reshape(r * n, h, g, d) + from_suffix
        return together.reshape(r * n, h * g, d)

    def _times_prompt(self, rows: torch.Tensor, prompt: torch.Tensor) -> torch.Tensor:
        """Multiply (R, H, n, a) by (R, H, a, b) in whole blocks of rows: (R, H, n, b)."""
        count = rows.shape[2]
        missing = -count % self._row_block
        if missing == 0:  # padding by nothing would copy
            return rows @ prompt
        return (F.pad(rows, (0, 0, 0, missing)) @ prompt)[:, :, :count]

    def _attention_mask(self, layer: int, heads: int, group: _Group) -> torch.Tensor:
        """Line the mask by absolute position up with [prompt | suffix]: (n, heads, P + used)."""
        assert self.masks is not None
        by_position = self.masks.attention(layer, heads, self.bucket + self.used)[group.lanes]
        suffix = self.lane_lengths[group.lanes, None] + torch.arange(
            self.used, device=by_position.device
        )
        columns = suffix[:, None].expand(-1, heads, -1)
        return torch.cat((by_position[..., : self.bucket], by_position.gather(-1, columns)), dim=-1)


def lane_attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor | _LaneKV,
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
    if isinstance(key, _LaneKV):
        out = key.cache.attend(key.layer, query[0].transpose(0, 1), scaling)
        return out[None], None
    assert value is not None
    # Prompts are padded on the right: no real token sees padding, so causality is the whole mask.
    prompt = F.scaled_dot_product_attention(
        query, key, value, is_causal=True, scale=scaling, enable_gqa=query.shape[1] != key.shape[1]
    )
    return torch.as_tensor(prompt).transpose(1, 2), None


AttentionInterface.register(ATTENTION_NAME, lane_attention)


def _times(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Multiply (…, g, a) by (…, a, b); element-wise for g = 1, where batched products are slow."""
    if left.shape[-2] > 1:
        return left @ right
    return (left.mT * right).sum(-2, keepdim=True)


def _group(counts: Sequence[int]) -> tuple[_Group, ...]:
    groups, question, lane = [], 0, 0
    while question < len(counts):
        count, end = counts[question], question
        while end < len(counts) and counts[end] == count:
            end += 1
        r = end - question
        groups.append(_Group(slice(question, end), slice(lane, lane + r * count), (r, count)))
        question, lane = end, lane + r * count
    return tuple(groups)


def _padding_bias(lengths: torch.Tensor, prompt_kv: torch.Tensor) -> torch.Tensor | None:
    """Attention bias, −inf at padded prompt positions: (R, 1, 1, 1, P), or None without padding."""
    padded = torch.arange(prompt_kv.shape[4]) >= lengths[:, None]
    if not bool(padded.any()):
        return None
    bias = torch.zeros(padded.shape, dtype=prompt_kv.dtype).masked_fill(padded, float("-inf"))
    return bias[:, None, None, None].to(prompt_kv.device)
