"""Lanes: the N trajectories of a question along the sequence axis, sharing its prompt's keys and values.

The decoder sees one sequence of T lanes (all lanes of all questions, packed) at their own positions.
`LaneCache` keeps each question's prompt once and a small suffix per lane. It attends, when
`latent.attention` calls it, by one dense product against the shared prompt, a small one against the
lane's own suffix, and one softmax over both. Only the products with prompts depend on the question:
they are done by groups of equal prompt padding and lane count, and all else for all lanes together.
Positions and masks live in the cache, so transformers builds none.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
import torch.nn.functional as F
from transformers.cache_utils import Cache

from latent.attention import LaneKV
from latent.dropout import DropoutMasks
from latent.noise import Site

__all__ = [
    "LaneCache",
    "Prefix",
    "PromptCache",
    "row_block",
    "to_device",
]

# Matrix libraries use other kernels for products of few rows, and element-wise loops treat what does
# not fill a vector apart; both round differently. With one thread neither reaches whole blocks of 16
# rows; with more, `reproducibility` measures it.
_CPU_ROW_BLOCK = 16


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
    """Neighbouring questions with equally many lanes: a dense block for the products with prompts."""

    questions: slice  # of those in the bucket
    lanes: slice  # of those in the bucket
    shape: tuple[int, int]  # (questions R, lanes N of each)


@dataclass(frozen=True)
class _Bucket:
    """The questions of one padded length P: their prompts, and where their lanes are."""

    prompt_kv: torch.Tensor  # (layers, 2, R, heads, P, d)
    bias: torch.Tensor | None  # (lanes, 1, 1, P): −inf at padding; None if there is none
    lanes: slice
    groups: tuple[_Group, ...]


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
    """Keys and values of T lanes: every prompt once, and a suffix of `capacity` slots per lane.

    Questions come by their bucket, and in it those with equally many lanes are neighbours.
    """

    def __init__(self, prefixes: Sequence[Prefix], counts: Sequence[int], capacity: int) -> None:
        super().__init__(layers=[])
        like = prefixes[0].kv
        self._row_block = row_block(like.device)
        self._lengths = [prefix.length for prefix in prefixes]
        prompts = [
            torch.stack([prefix.kv for prefix in own], dim=2)
            for _, own in groupby(prefixes, key=lambda prefix: prefix.bucket)
        ]
        self._buckets = _arrange(prompts, self._lengths, counts)
        self.lane_lengths = _by_lane(self._lengths, counts, like.device)  # (T,)
        # Slots come before lanes: a pass writes one piece, and slots that are not used cost nothing.
        layers, _, heads, _, d = like.shape
        self.suffix_kv = like.new_empty(layers, 2, capacity, sum(counts), heads, d)
        self._written = 0  # slots that hold numbers for all lanes
        self.masks: DropoutMasks | None = None
        self.slot: int | torch.Tensor = 0
        self.used = 0
        self.suffix_bias: torch.Tensor | None = None

    def positions(self, used: int) -> int:
        """Length of the longest prompt, with its padding, or with `used` slots of suffix if more."""
        longest = max(bucket.prompt_kv.shape[4] for bucket in self._buckets)
        return max(longest, max(self._lengths) + used)

    @property
    def prompt_bytes(self) -> int:
        """Bytes that the prompts take."""
        return sum(bucket.prompt_kv.nbytes for bucket in self._buckets)

    def at(self, slot: int | torch.Tensor) -> torch.Tensor:
        """Set the suffix slot of the next pass; return positions (1, T).

        One for all lanes, or (T,); a tensor without dimensions is one for all that is not known when a
        step is compiled, so attention covers all slots then.
        """
        self.slot = slot
        if isinstance(slot, int):
            self.used, self.suffix_bias = slot + 1, None
            self._written = max(self._written, self.used)
            return (self.lane_lengths + slot)[None]
        self.used = int(slot.max()) + 1 if slot.dim() else self.suffix_kv.shape[2]
        # Lanes see zeros, and not what happens to be in memory, where their bias is −inf.
        if self._written < self.used:
            self.suffix_kv[:, :, self._written : self.used] = 0
            self._written = self.used
        hidden = torch.arange(self.used, device=slot.device) > slot.view(-1, 1)  # (T or 1, used)
        self.suffix_bias = torch.zeros_like(hidden, dtype=self.suffix_kv.dtype).masked_fill(
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
    ) -> tuple[LaneKV, None]:
        """Write one position of every lane: (1, heads, T, d) each."""
        for suffix, states in zip(
            self.suffix_kv[layer_idx].unbind(), (key_states, value_states), strict=True
        ):
            own = states[0].transpose(0, 1)  # (T, heads, d)
            if isinstance(self.slot, int):
                suffix[self.slot] = own
            elif self.slot.dim() == 0:
                suffix.index_copy_(0, self.slot[None], own[None])
            else:
                suffix[self.slot, torch.arange(len(own), device=suffix.device)] = own
        return LaneKV(self, layer_idx), None

    def keep(self, questions: Sequence[int], lanes: torch.Tensor, counts: Sequence[int]) -> None:
        """Keep only these questions and lanes, in the order that the class asks for."""
        prompts, first = [], 0
        for bucket in self._buckets:
            here = bucket.prompt_kv.shape[2]
            rows = [number - first for number in questions if first <= number < first + here]
            first += here
            if rows == list(range(here)):
                prompts.append(bucket.prompt_kv)
            elif rows:
                chosen = to_device(torch.tensor(rows), lanes.device)
                prompts.append(bucket.prompt_kv.index_select(2, chosen))
        self._lengths = [self._lengths[number] for number in questions]
        self._buckets = _arrange(prompts, self._lengths, counts)
        self.lane_lengths = self.lane_lengths.index_select(0, lanes)
        # Into the front of the same memory, and only the slots that hold something.
        kept = self.suffix_kv[:, :, : self._written].index_select(3, lanes)
        self.suffix_kv = self.suffix_kv[:, :, :, : len(lanes)]
        self.suffix_kv[:, :, : self._written] = kept

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Positions are always passed in, so this is never the source of one."""
        return self.positions(self.used)

    def attend(self, layer: int, query: torch.Tensor, scaling: float) -> torch.Tensor:
        """Attend from every lane (T, query heads, d) to its prompt and its suffix: same shape."""
        suffix_k, suffix_v = self.suffix_kv[layer, :, : self.used].unbind()  # (s, T, H, d)
        own = (query * scaling).view(*suffix_k.shape[1:3], -1, query.shape[-1])  # (T, H, g, d)
        to_suffix = _to_suffix(own, suffix_k)  # (T, H, g, s)
        if self.suffix_bias is not None:
            to_suffix = to_suffix + self.suffix_bias[:, None, None]
        mask = None
        if self.masks is not None and self.masks.has(Site.ATTENTION):
            mask = self.masks.attention(layer).view(*own.shape[:3], -1)  # by position
        parts = [
            self._attend_bucket(layer, bucket, own, to_suffix, mask) for bucket in self._buckets
        ]
        from_prompt = _cat([part for part, _ in parts])  # (T, H, g, d)
        on_suffix = _cat([weights for _, weights in parts])  # (T, H, g, s)
        return (from_prompt + _from_suffix(on_suffix, suffix_v)).reshape(query.shape)

    def _attend_bucket(
        self,
        layer: int,
        bucket: _Bucket,
        own: torch.Tensor,
        to_suffix: torch.Tensor,
        mask: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """What its lanes get of their prompts (lanes, H, g, d), and their weights on suffixes."""
        prompt_k, prompt_v = bucket.prompt_kv[layer].unbind()  # (R, H, P, d)
        p = prompt_k.shape[2]
        to_prompt = self._times_prompts(own[bucket.lanes], prompt_k.mT, bucket.groups)
        if bucket.bias is not None:
            to_prompt = to_prompt + bucket.bias
        scores = torch.cat((to_prompt, to_suffix[bucket.lanes]), dim=-1)  # (lanes, H, g, P + s)
        weights = scores.softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32))
        weights = weights.to(scores.dtype)
        if mask is not None:
            weights = weights * self._align(mask, bucket.lanes, p)
        return self._times_prompts(weights[..., :p], prompt_v, bucket.groups), weights[..., p:]

    def _times_prompts(
        self, rows: torch.Tensor, prompts: torch.Tensor, groups: Sequence[_Group]
    ) -> torch.Tensor:
        """Multiply lanes (lanes, H, g, a) by their questions' (R, H, a, b): (lanes, H, g, b).

        Query heads that share a key head go along with the lanes, and lanes fill whole blocks of rows.
        """
        h, g, a = rows.shape[1:]
        parts = []
        for group in groups:
            r, n = group.shape
            dense = rows[group.lanes].view(r, n, h, g, a).transpose(1, 2).reshape(r, h, n * g, a)
            missing = -(n * g) % self._row_block
            if missing:  # padding by nothing would copy
                dense = F.pad(dense, (0, 0, 0, missing))
            product = (dense @ prompts[group.questions])[:, :, : n * g]
            parts.append(product.view(r, h, n, g, -1).transpose(1, 2).reshape(r * n, h, g, -1))
        return _cat(parts)

    def _align(self, mask: torch.Tensor, lanes: slice, prompt: int) -> torch.Tensor:
        """Line a mask by absolute position up with [prompt | suffix]: (lanes, H, g, P + used)."""
        own = mask[lanes]
        columns = self.lane_lengths[lanes, None] + torch.arange(self.used, device=mask.device)
        columns = columns[:, None, None].expand(*own.shape[:3], -1)
        return torch.cat((own[..., :prompt], own.gather(-1, columns)), dim=-1)


def to_device(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Move from the host; a GPU copies from pinned memory while the host goes on."""
    if device.type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def _to_suffix(own: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """Scores of queries (T, H, g, d) with keys (s, T, H, d): (T, H, g, s).

    Element-wise for g = 1, where batched products are slow.
    """
    if own.shape[2] > 1:
        return own @ keys.permute(1, 2, 3, 0)
    return (own[:, :, 0] * keys).sum(-1).permute(1, 2, 0)[:, :, None]


def _from_suffix(weights: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Sum of values (s, T, H, d) by weights (T, H, g, s): (T, H, g, d)."""
    if weights.shape[2] > 1:
        return weights @ values.permute(1, 2, 0, 3)
    return (weights.permute(3, 0, 1, 2) * values).sum(0)[:, :, None]


def _cat(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


def _by_lane(values: Sequence[int], counts: Sequence[int], device: torch.device) -> torch.Tensor:
    """Repeat each question's value for its lanes: (T,)."""
    return to_device(torch.tensor(values).repeat_interleave(torch.tensor(counts)), device)


def _arrange(
    prompts: Sequence[torch.Tensor], lengths: Sequence[int], counts: Sequence[int]
) -> list[_Bucket]:
    """Place the lanes of questions, given by bucket."""
    buckets, question, lane = [], 0, 0
    for prompt_kv in prompts:
        own = slice(question, question + prompt_kv.shape[2])
        question, total = own.stop, sum(counts[own])
        bias = _padding_bias(lengths[own], counts[own], prompt_kv)
        buckets.append(_Bucket(prompt_kv, bias, slice(lane, lane + total), _group(counts[own])))
        lane += total
    return buckets


def _group(counts: Sequence[int]) -> tuple[_Group, ...]:
    groups, question, lane = [], 0, 0
    for count, same in groupby(counts):
        r = len(list(same))
        lanes = slice(lane, lane + r * count)
        groups.append(_Group(slice(question, question + r), lanes, (r, count)))
        question, lane = question + r, lanes.stop
    return tuple(groups)


def _padding_bias(
    lengths: Sequence[int], counts: Sequence[int], prompt_kv: torch.Tensor
) -> torch.Tensor | None:
    """Attention bias, −inf at padded prompt positions: (lanes, 1, 1, P), or None without padding."""
    size = prompt_kv.shape[4]
    if all(length == size for length in lengths):
        return None
    ends = _by_lane(lengths, counts, prompt_kv.device)
    padded = torch.arange(size, device=prompt_kv.device) >= ends[:, None]
    bias = torch.zeros(padded.shape, dtype=prompt_kv.dtype, device=prompt_kv.device)
    return bias.masked_fill(padded, float("-inf"))[:, None, None]
