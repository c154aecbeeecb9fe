"""Step supervision: trains each pair of thoughts to predict its equation. Not part of the reasoner.

The final answer alone is too weak a signal for a small decoder: without step supervision no run
passed 5% once two or more steps were thoughts. Supervising each thought by its step is SIM-CoT's
idea; the code is ours: the first thought predicts the operation, the operand and the result's last
two digits, the second the result's other digits. Thoughts after the last step repeat the answer.

The embeddings of the true codes can also be fed in place of the thoughts (teacher forcing), so that a
whole chain is learned in one pass before any hidden state is fed back.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from latent.errors import InputError
from trainer.data.corpus import IGNORED, Example

BASE = 100
SYMBOLS = "+-*/"
THOUGHTS_PER_STEP = 2
OPERATION_WEIGHT = 0.5
_EQUATION = re.compile(r"(\d+)([-+*/])(\d+)=(\d+)")


@dataclass(frozen=True)
class Equation:
    """What the two thoughts of a step predict."""

    symbol: int
    operand: int
    low: int
    high: int


@dataclass(frozen=True)
class CodeTargets:
    """Codes of a batch of B examples with S steps each."""

    results: Tensor  # (B, 2S) low and high digits in turn
    operands: Tensor  # (B, S), IGNORED after the last step
    symbols: Tensor  # (B, S), IGNORED after the last step


@lru_cache(maxsize=1 << 18)
def read_equation(text: str) -> Equation:
    """Parse `12+30=42`; an equation whose numbers two codes can't hold is an error."""
    found = _EQUATION.fullmatch(text)
    operand, result = (int(found[3]), int(found[4])) if found else (BASE, 0)
    if found is None or operand >= BASE or result >= BASE**2:
        raise InputError(
            f"the step {text!r} can't be taught to thoughts: --supervised-steps wants equations such "
            f"as 12+30=42, with a second number below {BASE} and a result below {BASE**2}; use 0"
        )
    return Equation(SYMBOLS.index(found[2]), operand, result % BASE, result // BASE)


def code_targets(examples: Sequence[Example], steps: int) -> CodeTargets:
    """Codes of the examples' equations, padded to `steps` steps."""
    results, operands, symbols = [], [], []
    for example in examples:
        known = [read_equation(text) for text in example.equations[:steps]]
        blank = steps - len(known)
        padded = [*known, *[known[-1]] * blank]
        results.append([code for equation in padded for code in (equation.low, equation.high)])
        operands.append([equation.operand for equation in known] + [IGNORED] * blank)
        symbols.append([equation.symbol for equation in known] + [IGNORED] * blank)
    return CodeTargets(torch.tensor(results), torch.tensor(operands), torch.tensor(symbols))


class StepCodes(nn.Module):
    """Embedding tables of result digits, operands and operations; a thought is scored against them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.results = nn.Embedding(BASE, width)
        self.operands = nn.Embedding(BASE, width)
        self.symbols = nn.Embedding(len(SYMBOLS), width)
        nn.init.normal_(
            self.results.weight, std=0.1
        )  # larger than a token's: it is fed in place of a thought
        nn.init.normal_(self.operands.weight, std=0.02)
        nn.init.normal_(self.symbols.weight, std=0.02)

    def loss(self, thoughts: Tensor, targets: CodeTargets) -> Tensor:
        """Cross-entropy of the codes given thoughts (B, 2S, D)."""
        firsts = thoughts[:, ::THOUGHTS_PER_STEP]
        operation = _loss(firsts, self.operands, targets.operands)
        operation = operation + _loss(firsts, self.symbols, targets.symbols)
        return _loss(thoughts, self.results, targets.results) + OPERATION_WEIGHT * operation

    def is_right(self, thoughts: Tensor, targets: CodeTargets) -> Tensor:
        """Whether every thought of a row predicts its result code: (B,)."""
        nearest = (thoughts @ self.results.weight.T).argmax(-1)
        return (nearest == targets.results).all(-1)


def _loss(states: Tensor, table: nn.Embedding, labels: Tensor) -> Tensor:
    logits = states @ table.weight.T
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED)
