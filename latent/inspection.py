"""Thoughts made visible: their paths in two dimensions, and the tokens that they read like."""

from dataclasses import dataclass

import torch

from latent.reasoner import Reasoner
from latent.votes import geometric_median

__all__ = ["Paths", "TokenReading", "find_paths", "read_thoughts"]


@dataclass(frozen=True)
class Paths:
    """N trajectories of K thoughts in the plane of the two largest principal components."""

    points: torch.Tensor  # (N, K, 2)
    median: torch.Tensor  # (K, 2) the geometric median of each thought
    explained: tuple[float, float]  # shares of the variance along the two axes


@dataclass(frozen=True)
class TokenReading:
    """A token that a state would be decoded to, and how likely."""

    token: str
    probability: float


def find_paths(thoughts: torch.Tensor) -> Paths:
    """Project thoughts (N, K, D) by PCA over all of them together; row 0 is the deterministic one.

    The Gram matrix has the scores of the principal components as eigenvectors, so the cost does not
    grow with D beyond one product. Each axis points the way the deterministic trajectory goes. The
    median is of the sampled trajectories (of all, if there is one), in all D dimensions.
    """
    count, steps, width = thoughts.shape
    rows = thoughts.double().cpu().reshape(-1, width)
    rows = rows - rows.mean(0)
    values, vectors = torch.linalg.eigh(rows @ rows.T)  # ascending
    values, vectors = values.clamp(min=0.0).flip(0), vectors.flip(1)
    plane = torch.zeros(len(rows), 2, dtype=torch.float64)
    axes = min(2, len(rows))
    plane[:, :axes] = vectors[:, :axes] * values[:axes].sqrt()
    points = plane.reshape(count, steps, 2)
    points = points * torch.where(points[0, -1] < points[0, 0], -1.0, 1.0)
    sampled = slice(1, None) if count > 1 else slice(None)
    # The median is a weighted mean of the thoughts, so its projection is that of the points.
    weights = [
        torch.from_numpy(geometric_median(thoughts[sampled, k].double().cpu().numpy()).weights)
        for k in range(steps)
    ]
    median = torch.stack([w @ points[sampled, k] for k, w in enumerate(weights)])
    total = float(values.sum())
    shares = [float(value) / total if total > 0 else 0.0 for value in values[:2].tolist()]
    first, second = (*shares, 0.0, 0.0)[:2]
    return Paths(points, median, (first, second))


def read_thoughts(
    reasoner: Reasoner, states: torch.Tensor, count: int
) -> list[list[list[TokenReading]]]:
    """The `count` likeliest tokens of every state (N, K, D) through the vocabulary head."""
    readings = []
    for trajectory in states:  # one at a time: K × V numbers are held, not N × K × V
        top = reasoner.logits(trajectory).softmax(-1).topk(count)  # (K, count)
        readings.append(
            [
                [
                    TokenReading(str(reasoner.tokenizer.decode([token])), probability)
                    for token, probability in zip(tokens, probabilities, strict=True)
                ]
                for tokens, probabilities in zip(
                    top.indices.tolist(), top.values.tolist(), strict=True
                )
            ]
        )
    return readings
