"""Chains of arithmetic operations: drawing them, and the split that each belongs to."""

import hashlib
import random
from dataclasses import dataclass

OPERATION_WEIGHTS = {2: 0.30, 3: 0.26, 4: 0.20, 5: 0.14, 6: 0.10}
SYMBOL_WEIGHTS = {"+": 0.42, "-": 0.38, "*": 0.11, "/": 0.09}
FACTOR_WEIGHTS = {2: 5, 3: 4, 4: 3, 5: 3, 6: 1, 7: 1, 8: 1, 9: 1}
USUAL_LIMIT, LARGE_LIMIT, LARGE_SHARE = 250, 9999, 0.20
SPLITS = ("train", "validation", "test", "ood")


@dataclass(frozen=True)
class Operation:
    """One step: symbol and operand, applied to the running value."""

    symbol: str
    operand: int

    def apply(self, value: int) -> int:
        """Exact result for a running value."""
        match self.symbol:
            case "+":
                return value + self.operand
            case "-":
                return value - self.operand
            case "*":
                return value * self.operand
            case _:
                return value // self.operand


@dataclass(frozen=True)
class Chain:
    """A first number and operations, each applied to the result of the one before."""

    start: int
    operations: tuple[Operation, ...]

    @property
    def values(self) -> tuple[int, ...]:
        """Running value after each operation."""
        value, values = self.start, []
        for operation in self.operations:
            value = operation.apply(value)
            values.append(value)
        return tuple(values)

    @property
    def steps(self) -> tuple[str, ...]:
        """Equations such as `12+30=42`."""
        before = (self.start, *self.values)
        return tuple(
            f"{value}{operation.symbol}{operation.operand}={result}"
            for value, operation, result in zip(before, self.operations, self.values, strict=False)
        )


def draw_chain(rng: random.Random) -> Chain:
    """Draw a chain of 2 to 6 operations whose values stay whole, positive and below 10,000."""
    is_large = rng.random() < LARGE_SHARE
    limit = LARGE_LIMIT if is_large else USUAL_LIMIT
    count = rng.choices(tuple(OPERATION_WEIGHTS), tuple(OPERATION_WEIGHTS.values()))[0]
    start = rng.randint(100, 999) if is_large else rng.randint(5, 99)
    value, operations = start, []
    for _ in range(count):
        operation = _draw_operation(rng, value, limit)
        value = operation.apply(value)
        operations.append(operation)
    return Chain(start, tuple(operations))


def split_of(chain: Chain) -> str:
    """The one split that a chain belongs to, from a hash of its equations.

    It does not depend on the words, so a paraphrase of a training problem is never a test problem. The
    `ood` split takes its chains from those of the test split.
    """
    digest = hashlib.sha256(" ".join(chain.steps).encode()).digest()
    return ("validation", "test")[digest[0] % 2] if digest[1] < 51 else "train"


def _draw_number(rng: random.Random, limit: int) -> int:
    # Small numbers are more frequent, as in school books.
    return rng.randint(2, min(limit, 20 if rng.random() < 0.85 else 99))


def _draw_operation(rng: random.Random, value: int, limit: int) -> Operation:
    divisors = [k for k in FACTOR_WEIGHTS if value % k == 0 and value // k >= 2]
    factors = [k for k in FACTOR_WEIGHTS if value * k <= limit]
    possible = {"+": value + 99 <= limit, "-": value >= 8, "*": factors, "/": divisors}
    weights = [SYMBOL_WEIGHTS[symbol] if possible[symbol] else 0.0 for symbol in SYMBOL_WEIGHTS]
    symbol = rng.choices(tuple(SYMBOL_WEIGHTS), weights)[0]
    match symbol:
        case "+":
            return Operation(symbol, _draw_number(rng, 99))
        case "-":
            return Operation(symbol, _draw_number(rng, value - 2))
        case "*":
            return Operation(symbol, _draw_factor(rng, factors))
        case _:
            return Operation(symbol, _draw_factor(rng, divisors))


def _draw_factor(rng: random.Random, among: list[int]) -> int:
    return rng.choices(among, [FACTOR_WEIGHTS[factor] for factor in among])[0]
