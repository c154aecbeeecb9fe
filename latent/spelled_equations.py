"""A calculator for thoughts: spelled thoughts are read as signs, and results are put in their places.

A thought is spelled if it was taught to be the input embedding of a sign of an equation. It is read as
the sign whose embedding is nearest. After the thoughts of `12+5=` those of `17` are embeddings of the
result's digits; the reasoner decides only what is computed. Knows nothing of lanes or samplers.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from latent.calculator import Calculator, Registers
from latent.trajectory import IMPOSSIBLE

__all__ = ["SignHead", "SpelledEquations", "nearest_sign"]


def nearest_sign(thoughts: Tensor, signs: Tensor) -> Tensor:
    """Index of the sign (A, D) that is nearest to each thought: (…, D) → (…,)."""
    return (thoughts @ signs.T - signs.square().sum(-1) / 2).argmax(-1)


class SignHead(NamedTuple):
    """The vocabulary head for the A signs of equations alone, in fp32 or more."""

    weight: Tensor  # (A, D)
    bias: Tensor | None  # (A,)

    @classmethod
    def of(cls, head: nn.Linear, sign_ids: Tensor) -> "SignHead":
        """Copy the rows of these tokens."""
        dtype = torch.promote_types(head.weight.dtype, torch.float32)
        bias = None if head.bias is None else head.bias[sign_ids].detach().to(dtype)
        return cls(head.weight[sign_ids].detach().to(dtype), bias)

    def logprobs(self, states: Tensor) -> Tensor:
        """Log-probability of each sign among all signs, in float64: (T, D) → (T, A)."""
        logits = nn.functional.linear(states.to(self.weight.dtype), self.weight, self.bias)
        return logits.double().log_softmax(-1)


class SpelledEquations:
    """What T rows have thought so far, read as equations; all on the device of the thoughts."""

    def __init__(
        self,
        calculator: Calculator,
        embed: Callable[[Tensor], Tensor],
        rows: int,
        head: SignHead | None = None,
    ) -> None:
        """`logprobs` are computed if the vocabulary head for the signs is given."""
        self._calculator, self._embed, self._head = calculator, embed, head
        self._signs = embed(calculator.sign_ids)  # (A, D)
        device = calculator.sign_ids.device
        self._state = Registers.idle(rows, device)
        # (T,) log-probability of the signs read, without those of results; None without a head.
        self.logprobs: Tensor | None = None
        if head is not None:
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

        To `logprobs` is added what the vocabulary head gives the sign among all signs, from the states
        (T, D) that the thoughts were made of.
        """
        signs = self._nearest(thoughts)
        if self._head is not None and self.logprobs is not None:
            assert states is not None
            likely = self._head.logprobs(states).gather(-1, signs[:, None])[:, 0]
            is_due, _ = self._calculator.due(self._state)
            # A lane whose state has overflowed has no distribution.
            likely = likely.nan_to_num(nan=IMPOSSIBLE, neginf=IMPOSSIBLE)
            self.logprobs += torch.where(is_due, 0.0, likely)
        self._state = self._calculator.read(self._state, self._calculator.sign_ids[signs])

    def _nearest(self, thoughts: Tensor) -> Tensor:
        return nearest_sign(thoughts.to(self._signs.dtype), self._signs)
