"""How few rows a matrix product may have for its rows not to depend on how many there are."""

import torch
from torch import nn

__all__ = ["measure_row_floor"]

_SAFE_FLOOR = 16
_REFERENCE_ROWS = 64
_HEADS, _HEAD_WIDTHS, _PROMPT = 4, (16, 32, 64, 128), 48


@torch.no_grad()
def measure_row_floor(decoder: nn.Module, device: torch.device, dtype: torch.dtype) -> int:
    """Find the least row count whose products equal, bit for bit, those of larger ones.

    Libraries switch kernels for very few rows (below 4 here, below 16 on other machines), and the
    kernels round differently. Measured once, on the decoder's own weights and on products of an
    attention's shapes. On a GPU the same bits are not promised, so no row is added for them.
    """
    if device.type != "cpu":
        return 1
    shapes = {p.shape: p for p in decoder.parameters() if p.dim() == 2 and min(p.shape) > 1}
    matrices = sorted(shapes.values(), key=lambda p: p.numel())[:8]
    generator = torch.Generator().manual_seed(0)
    heads = [torch.randn(_HEADS, d, _PROMPT, generator=generator).to(dtype) for d in _HEAD_WIDTHS]
    operands = [side for m in (*matrices, *heads) for side in (m, m.transpose(-1, -2))]
    return next(
        (m for m in (1, 2, 4, 8) if all(_agrees(right, m, generator) for right in operands)),
        _SAFE_FLOOR,
    )


def _agrees(right: torch.Tensor, rows: int, generator: torch.Generator) -> bool:
    shape = (*right.shape[:-2], _REFERENCE_ROWS, right.shape[-2])
    left = torch.randn(shape, generator=generator).to(right.dtype)
    few = left[..., :rows, :].contiguous() @ right
    return torch.equal((left @ right)[..., :rows, :], few)
