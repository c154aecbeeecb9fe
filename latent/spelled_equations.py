"""A calculator for thoughts: spelled thoughts are read as signs, and results are put in their places.

A thought is spelled if it was taught to be the input embedding of a sign of an equation. It is read as
the sign whose embedding is nearest. After the thoughts of `12+5=` those of `17` are embeddings of the
result's digits; the reasoner decides only what is computed. Knows nothing of lanes or samplers.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from latent.calculator import Calculator, Registers
from latent.trajectory import IMPOSSIBLE

__all__ = ["SpelledEquations", "nearest_sign"]


def nearest_sign(thoughts: Tensor, signs: Tensor) -> Tensor:
    """Index of the sign (A, D) that is nearest to each thought: (…, D) → (…,)."""
    return (thoughts @ signs.T - signs.square().sum(-1) / 2).argmax(-1)


class SpelledEquations:
    """What T rows have thought so far, read as equations; all on the device of the thoughts."""

    def __init__(
        self,
        calculator: Calculator,
        embed: Callable[[Tensor], Tensor],
        rows: int,
        head: Tensor | None = None,
    ) -> None:
        """`head` (A, D): rows of the vocabulary head for the signs; `logprobs` needs it."""
        self._calculator, self._embed, self._head = calculator, embed, head
        self._signs = embed(calculator.sign_ids)  # (A, D)
        device = calculator.sign_ids.device
        self._state = Registers.idle(rows, device)
        # (T,) log-probability of the signs that were read, but for those of results.
        self.logprobs = torch.zeros(rows, dtype=torch.float64, device=device)

    def correct(self, contexts: Tensor) -> Tensor:
        """Contexts (T, D) with the embedding of its sign where a result is due."""
        chosen = self._calculator.sign_ids[self._nearest(contexts)]
        is_due, _ = self._calculator.due(self._state)
        corrected = self._calculator.correct(self._state, chosen)
        is_replaced = is_due | (corrected != chosen)
        written = self._embed(corrected).to(contexts.dtype)
        return torch.where(is_replaced[:, None], written, contexts)

    def read(self, thoughts: Tensor, states: Tensor | None = None) -> None:
        """Read the next thought of every row, as it is fed back: (T, D).

        With the states (T, D) that the thoughts were made of, `logprobs` adds up how likely the
        vocabulary head found each sign among all signs.
        """
        signs = self._nearest(thoughts)
        if states is not None and self._head is not None:
            likely = (states.to(self._head.dtype) @ self._head.T).double()
            likely = likely.log_softmax(-1).gather(-1, signs[:, None])[:, 0]
            is_due, _ = self._calculator.due(self._state)
            # A lane whose state has overflowed has no distribution.
            self.logprobs += torch.where(is_due, 0.0, likely.nan_to_num(nan=IMPOSSIBLE))
        self._state = self._calculator.read(self._state, self._calculator.sign_ids[signs])

    def _nearest(self, thoughts: Tensor) -> Tensor:
        return nearest_sign(thoughts.to(self._signs.dtype), self._signs)
