"""Dropout whose masks are addressed, inside a decoder that stays in eval mode.

Masks are a function of (trajectory, step, layer, site, head, absolute key position or channel), so
neither padding nor batch-mates shift them. Sites are found by role, not by architecture:
`embedding` is what enters the first layer, `residual` what attention and MLP add to the stream,
`attention` the attention weights (applied by the lanes), `projection` what enters CODI's projection.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from latent.errors import UnsupportedError
from latent.noise import Address, LaneNoise, Site

__all__ = ["DropoutMasks", "DropoutSites", "addresses_of", "default_sites", "find_layers"]


class DropoutMasks:
    """The masks of T lanes for one step; each is 0 or 1/(1−p), and 1 for lanes that drop nothing.

    All numbers of the step are drawn at once, when it begins.
    """

    def __init__(
        self,
        noise: LaneNoise,
        step: int,
        probability: float,
        is_dropping: torch.Tensor,  # (T,) bool
        addresses: Sequence[Address],
        dtype: torch.dtype,
    ) -> None:
        one = torch.ones((), dtype=dtype, device=is_dropping.device)
        self._scale = torch.where(is_dropping, one / (1.0 - probability), one)[:, None, None]
        drawn = noise.exceed(step, tuple(addresses), probability, is_dropping)
        self._is_kept = {
            (each.site, each.layer): part for each, part in zip(addresses, drawn, strict=True)
        }

    def has(self, site: Site) -> bool:
        """Whether anything is dropped there."""
        return (site, 0) in self._is_kept

    def channels(self, site: Site, layer: int = 0) -> torch.Tensor:
        """Mask over channels: (T, width)."""
        return self._mask(site, layer)[:, 0]

    def attention(self, layer: int) -> torch.Tensor:
        """Mask over attention weights by absolute key position: (T, heads, positions)."""
        return self._mask(Site.ATTENTION, layer)

    def _mask(self, site: Site, layer: int) -> torch.Tensor:
        return self._is_kept[site, layer].to(self._scale.dtype).mul_(self._scale)


def addresses_of(
    sites: frozenset[str], *, width: int, layers: int, heads: int, positions: int
) -> list[Address]:
    """What a step draws: the addresses of these sites, by layer."""
    found = [Address(Site.EMBEDDING, width)] if "embedding" in sites else []
    if "projection" in sites:
        found.append(Address(Site.PROJECTION, width))
    for layer in range(layers):
        if "attention" in sites:
            found.append(Address(Site.ATTENTION, positions, layer, heads))
        if "residual" in sites:
            found.append(Address(Site.ATTENTION_RESIDUAL, width, layer))
            found.append(Address(Site.MLP_RESIDUAL, width, layer))
    return found


class DropoutSites:
    """Hooks on a decoder that apply the active masks, and do nothing when there are none."""

    def __init__(self, decoder: nn.Module, layer_count: int) -> None:
        self._active: DropoutMasks | None = None
        layers = find_layers(decoder, layer_count)
        layers[0].register_forward_pre_hook(self._on_embedding, with_kwargs=True)
        for number, layer in enumerate(layers):
            for site, words in (
                (Site.ATTENTION_RESIDUAL, ("attn", "attention")),
                (Site.MLP_RESIDUAL, ("mlp", "feed_forward", "ffn")),
            ):
                _part(layer, words).register_forward_hook(self._on_residual(site, number))

    @contextmanager
    def applying(self, masks: DropoutMasks | None) -> Iterator[None]:
        """Apply these masks to the passes inside the block."""
        self._active = masks
        try:
            yield
        finally:
            self._active = None

    def _on_embedding(
        self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        if self._active is None or not self._active.has(Site.EMBEDDING):
            return None
        mask = self._active.channels(Site.EMBEDDING)
        return (args[0] * mask, *args[1:]), kwargs

    def _on_residual(self, site: Site, layer: int) -> Any:
        def hook(_: nn.Module, __: tuple[Any, ...], output: Any) -> Any:
            if self._active is None or not self._active.has(site):
                return None
            first = output[0] if isinstance(output, tuple) else output
            dropped = first * self._active.channels(site, layer)
            return (dropped, *output[1:]) if isinstance(output, tuple) else dropped

        return hook


def default_sites(decoder: nn.Module, *, has_projection: bool) -> frozenset[str]:
    """Dropout sites of the reasoner's own architecture: GPT-2's three, CODI's projection.

    A decoder without dropout of its own (LLaMA) drops only in CODI's projection; without one, in
    all three places, since it would otherwise not explore at all.
    """
    own = {"embedding", "attention", "residual"}
    if not any(isinstance(module, nn.Dropout) for module in decoder.modules()):
        return frozenset({"projection"} if has_projection else own)
    return frozenset(own | ({"projection"} if has_projection else set()))


def find_layers(decoder: nn.Module, layer_count: int) -> nn.ModuleList:
    """Find the decoder's list of layers."""
    for module in decoder.modules():
        if isinstance(module, nn.ModuleList) and len(module) == layer_count:
            return module
    raise UnsupportedError(f"{type(decoder).__name__} has no list of {layer_count} layers")


def _part(layer: nn.Module, words: Sequence[str]) -> nn.Module:
    for name, child in layer.named_children():
        if any(word in name for word in words) and "norm" not in name:
            return child
    raise UnsupportedError(f"{type(layer).__name__} has no part named like {' or '.join(words)}")
