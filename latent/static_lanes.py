"""Lanes in memory that stays where it is, with shapes that stay the same: what compiled steps run on.

An arena has T rows, in blocks of 16 rows of one question, and for every block its question's prompt,
padded to P positions. So the shapes of a step depend on (T, P) alone, and not on how many questions
there are, of which length, with how many lanes. What differs between passes is data: prompts, their
lengths, and the slot. `StaticLanes` is the part of `LaneCache`'s interface that a pass uses, on arenas.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers.cache_utils import Cache

from latent.attention import LaneKV
from latent.lanes import Prefix, to_device

__all__ = ["STATIC_BLOCK", "Arena", "Place", "StaticLanes", "Step", "whole_blocks"]

STATIC_BLOCK = 16  # rows that share a question


def whole_blocks(rows: int) -> int:
    """Round up to whole blocks."""
    return -(-rows // STATIC_BLOCK) * STATIC_BLOCK


class Arena(Cache):
    """Keys and values of T rows with prompts of up to P positions, and the attention on them.

    Everything here is traced by torch.compile: no attribute changes, only what is in the tensors.
    """

    def __init__(self, like: torch.Tensor, rows: int, prompt: int, capacity: int) -> None:
        """Allocate, like the keys and values (layers, 2, heads, any, d) of a prefix."""
        super().__init__(layers=[])
        layers, _, heads, _, d = like.shape
        blocks = rows // STATIC_BLOCK
        self.rows, self.prompt = rows, prompt
        self.prompt_kv = like.new_zeros(layers, 2, blocks, heads, prompt, d)
        self.suffix_kv = like.new_zeros(layers, 2, capacity, rows, heads, d)
        self.lengths = torch.ones(rows, dtype=torch.long, device=like.device)  # of prompts
        self.slot = torch.zeros((), dtype=torch.long, device=like.device)
        for tensor in (self.prompt_kv, self.suffix_kv, self.lengths, self.slot):
            # A CUDA graph may then write to it and need not copy it before every replay.
            torch._dynamo.mark_static_address(tensor)

    def positions(self) -> torch.Tensor:
        """Position of every row in its own sequence: (1, T)."""
        return (self.lengths + self.slot)[None]

    def update(  # type: ignore[override]
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        layer_idx: int,
        *_: Any,
        **__: Any,
    ) -> tuple[LaneKV, None]:
        """Write the slot of every row: (1, heads, T, d) each."""
        states = torch.stack((key_states[0], value_states[0])).transpose(1, 2)  # (2, T, heads, d)
        self.suffix_kv[layer_idx].index_copy_(1, self.slot[None], states[:, None])
        return LaneKV(self, layer_idx), None

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Positions are always passed in, so this is never the source of one."""
        return 0

    def attend(self, layer: int, query: torch.Tensor, scaling: float) -> torch.Tensor:
        """Attend from every row (T, query heads, d) to its prompt and its suffix: same shape.

        What a row must not see may be left from another pass, and be no number at all: its scores are
        replaced, and so are its values in the suffix. Prompts are filled up with zeros.
        """
        keys, values = self.suffix_kv[layer].unbind()  # (s, T, H, d)
        prompt_k, prompt_v = self.prompt_kv[layer].unbind()  # (B, H, P, d)
        blocks, h, p, d = prompt_k.shape
        own = (query * scaling).view(self.rows, h, -1, d)  # (T, H, g, d)
        g = own.shape[2]
        dense = own.view(blocks, STATIC_BLOCK, h, g, d).transpose(1, 2).reshape(blocks, h, -1, d)
        to_prompt = (dense @ prompt_k.mT).view(blocks, h, STATIC_BLOCK, g, p).transpose(1, 2)
        to_prompt = to_prompt.reshape(self.rows, h, g, p)
        to_suffix = (own * keys[:, :, :, None]).sum(-1).permute(1, 2, 3, 0)  # (T, H, g, s)
        device, nothing = query.device, float("-inf")
        is_padding = torch.arange(p, device=device) >= self.lengths[:, None]  # (T, P)
        is_later = torch.arange(len(keys), device=device) > self.slot  # (s,)
        scores = torch.cat(
            (
                to_prompt.masked_fill(is_padding[:, None, None], nothing),
                to_suffix.masked_fill(is_later, nothing),
            ),
            dim=-1,
        )
        weights = scores.softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32))
        weights = weights.to(scores.dtype)
        on_prompt = weights[..., :p].view(blocks, STATIC_BLOCK, h, g, p).transpose(1, 2)
        from_prompt = on_prompt.reshape(blocks, h, -1, p) @ prompt_v
        from_prompt = from_prompt.view(blocks, h, STATIC_BLOCK, g, d).transpose(1, 2)
        on_suffix = weights[..., p:].permute(3, 0, 1, 2)[..., None]  # (s, T, H, g, 1)
        seen = values.masked_fill(is_later[:, None, None, None], 0.0)[:, :, :, None]
        from_suffix = (on_suffix * seen).sum(0)  # (T, H, g, d)
        return (from_prompt.reshape(own.shape) + from_suffix).reshape(query.shape)


Step = Callable[[torch.Tensor], torch.Tensor]  # inputs (T, D) → states (T, D), at the arena's slot
Place = Callable[[int], tuple[Arena, Step]]  # rows → the smallest arena with room for them


class StaticLanes:
    """The lanes of one pass, in an arena; `counts` are whole blocks that fill the arena's rows."""

    def __init__(self, prefixes: Sequence[Prefix], counts: Sequence[int], place: Place) -> None:
        self._prefixes, self._place = list(prefixes), place
        self._arena, self._step = place(sum(counts))
        self._written = 0  # slots that hold numbers of this pass
        self._fill(counts)

    def step(self, inputs: torch.Tensor, slot: int) -> torch.Tensor:
        """Feed an input per row (T, D) at a suffix slot; return states after the final norm, (T, D)."""
        self._arena.slot.fill_(slot)
        self._written = max(self._written, slot + 1)
        return self._step(inputs)

    def keep(self, questions: Sequence[int], lanes: torch.Tensor, counts: Sequence[int]) -> None:
        """Keep only these questions and lanes, in a smaller arena."""
        before = self._arena
        self._prefixes = [self._prefixes[number] for number in questions]
        self._arena, self._step = self._place(len(lanes))
        kept = before.suffix_kv[:, :, : self._written].index_select(3, lanes)
        self._fill(counts)
        self._arena.suffix_kv[:, :, : self._written] = kept

    def _fill(self, counts: Sequence[int]) -> None:
        """Copy prompts and their lengths to the arena."""
        arena, block = self._arena, 0
        assert sum(counts) == arena.rows
        assert all(count % STATIC_BLOCK == 0 for count in counts)
        for prefix, count in zip(self._prefixes, counts, strict=True):
            own = slice(block, block + count // STATIC_BLOCK)
            block = own.stop
            arena.prompt_kv[:, :, own, :, : prefix.bucket] = prefix.kv[:, :, None]
            arena.prompt_kv[:, :, own, :, prefix.bucket :] = 0.0
        lengths = torch.tensor([prefix.length for prefix in self._prefixes])
        by_row = lengths.repeat_interleave(torch.tensor(counts))
        arena.lengths.copy_(to_device(by_row, arena.lengths.device))
