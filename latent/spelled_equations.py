"""A calculator for thoughts: spelled thoughts are read as signs, and results are put in their places.

A thought is spelled if it was taught to be the input embedding of a sign of an equation. It is read as
the sign whose embedding is nearest. After the thoughts of `12+5=` those of `17` are embeddings of the
result's digits; the reasoner decides only what is computed. Knows nothing of lanes or samplers.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from latent.calculator import Calculator, Registers

__all__ = ["SpelledEquations", "nearest_sign"]


def nearest_sign(thoughts: Tensor, signs: Tensor) -> Tensor:
    """Index of the sign (A, D) that is nearest to each thought: (…, D) → (…,)."""
    return (thoughts @ signs.T - signs.square().sum(-1) / 2).argmax(-1)


class SpelledEquations:
    """What T rows have thought so far, read as equations; all on the device of the thoughts."""

    def __init__(
        self, calculator: Calculator, embed: Callable[[Tensor], Tensor], rows: int
    ) -> None:
        self._calculator, self._embed = calculator, embed
        self._signs = embed(calculator.sign_ids)  # (A, D)
        self._state = Registers.idle(rows, calculator.sign_ids.device)

    def correct(self, contexts: Tensor) -> Tensor:
        """Contexts (T, D) with the embedding of its sign where a result is due."""
        chosen = self._tokens(contexts)
        is_due, _ = self._calculator.due(self._state)
        corrected = self._calculator.correct(self._state, chosen)
        is_replaced = is_due | (corrected != chosen)
        written = self._embed(corrected).to(contexts.dtype)
        return torch.where(is_replaced[:, None], written, contexts)

    def read(self, thoughts: Tensor) -> None:
        """Read the next thought of every row, as it is fed back: (T, D)."""
        self._state = self._calculator.read(self._state, self._tokens(thoughts))

    def _tokens(self, thoughts: Tensor) -> Tensor:
        return self._calculator.sign_ids[nearest_sign(thoughts.to(self._signs.dtype), self._signs)]
