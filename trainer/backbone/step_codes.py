"""Teaches thoughts the equations they stand for, two thoughts a step; thrown away once trained.

Cross-entropy on the final answer alone says too little to a small decoder: runs without this never
passed 5% once two steps or more were thoughts. The idea of supervising each thought by its step is
SIM-CoT's; the code for a step is ours: the first thought must tell the operation, the operand and
the result's last two digits, the second the result's other digits. After the last step the thoughts
go on telling the answer.

The same codes can be fed in place of the thoughts, so that a whole chain is learned in one pass
before the first state is fed back.
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
    """What a step's thoughts must tell."""

    symbol: int
    operand: int
    low: int
    high: int


@dataclass(frozen=True)
class CodeTargets:
    """The codes of a batch."""

    results: Tensor  # (B, 2S) low and high in turn
    operands: Tensor  # (B, S), IGNORED after the last step
    symbols: Tensor  # (B, S), IGNORED after the last step


@lru_cache(maxsize=1 << 18)
def read_equation(text: str) -> Equation:
    """Read `12+30=42`; only whole numbers that two codes can hold can be taught."""
    found = _EQUATION.fullmatch(text)
    operand, result = (int(found[3]), int(found[4])) if found else (BASE, 0)
    if found is None or operand >= BASE or result >= BASE**2:
        raise InputError(
            f"the step {text!r} can't be taught to thoughts: --supervised-steps wants equations such "
            f"as 12+30=42, with a second number below {BASE} and a result below {BASE**2}; use 0"
        )
    return Equation(SYMBOLS.index(found[2]), operand, result % BASE, result // BASE)


def code_targets(examples: Sequence[Example], steps: int) -> CodeTargets:
    """Lay out the equations of examples for `steps` steps of two thoughts."""
    results, operands, symbols = [], [], []
    for example in examples:
        known = [read_equation(text) for text in example.equations[:steps]]
        blank = steps - len(known)
        lasting = [*known, *[known[-1]] * blank]
        results.append([code for equation in lasting for code in (equation.low, equation.high)])
        operands.append([equation.operand for equation in known] + [IGNORED] * blank)
        symbols.append([equation.symbol for equation in known] + [IGNORED] * blank)
    return CodeTargets(torch.tensor(results), torch.tensor(operands), torch.tensor(symbols))


class StepCodes(nn.Module):
    """Three tables: of result digits, which can also be fed, of operands and of operations."""

    def __init__(self, width: int) -> None:
        """Draw the tables."""
        super().__init__()
        self.results = nn.Embedding(BASE, width)
        self.operands = nn.Embedding(BASE, width)
        self.symbols = nn.Embedding(len(SYMBOLS), width)
        nn.init.normal_(self.results.weight, std=0.1)  # fed like a thought, not like a token
        nn.init.normal_(self.operands.weight, std=0.02)
        nn.init.normal_(self.symbols.weight, std=0.02)

    def loss(self, thoughts: Tensor, targets: CodeTargets) -> Tensor:
        """Return how badly thoughts (B, 2S, D) tell their equations."""
        firsts = thoughts[:, ::THOUGHTS_PER_STEP]
        told = _loss(firsts, self.operands, targets.operands)
        told = told + _loss(firsts, self.symbols, targets.symbols)
        return _loss(thoughts, self.results, targets.results) + OPERATION_WEIGHT * told

    def is_right(self, thoughts: Tensor, targets: CodeTargets) -> Tensor:
        """Say for each row (B,) whether every thought tells its result."""
        nearest = (thoughts @ self.results.weight.T).argmax(-1)
        return (nearest == targets.results).all(-1)


def _loss(states: Tensor, table: nn.Embedding, labels: Tensor) -> Tensor:
    logits = states @ table.weight.T
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED)
