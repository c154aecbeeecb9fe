"""Muon's orthogonalised update."""

import torch

from trainer.backbone.optimizer import orthogonalise


def test_newton_schulz_brings_singular_values_near_one() -> None:
    torch.manual_seed(0)
    for shape in ((24, 8), (8, 24), (8, 8)):
        values = torch.linalg.svdvals(orthogonalise(torch.randn(shape)))
        assert values.min() > 0.5
        assert values.max() < 1.5
