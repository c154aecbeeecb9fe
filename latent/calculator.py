"""Writes the results of equations in a text reasoner's place: after `12+5=` come the tokens `17`.

GSM8K's authors sample with such a calculator: the reasoner decides what to compute. A row is read token
by token by a state machine in tensor operations, where the lanes are, so decoding never waits for it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from latent.errors import FormatError

__all__ = ["Calculator", "Registers"]

_DIGITS = "0123456789"
_OPERATORS = "+-*/"
_EXAMPLE = "12.5+3-40*6/7=89\n10-2=8\n"
_OTHER, _DIGIT, _OPERATOR, _EQUALS, _POINT = range(5)
_ADD, _SUBTRACT, _MULTIPLY, _DIVIDE = range(4)
# What a row is doing. After a result, or what is no expression, it waits for other text or a `=`.
_IDLE, _IN_NUMBER, _AFTER_OPERATOR, _WRITING, _AFTER_RESULT, _WAITING = range(6)
_MAX_DECIMALS = 4
_MAX_DIGITS = 12  # of a result, so that each is exact in float64
_TOLERANCE = 1e-12


@dataclass
class Registers:
    """State of n rows, each tensor (n,); whole numbers up to 2⁵³ and sums are held as float64."""

    phase: Tensor
    total: Tensor  # of the terms before the last
    term: Tensor  # the last term, a signed product
    operator: Tensor  # between `term` and the number that is being read
    operator_count: Tensor
    digits: Tensor  # of the number that is being read, or of the result, as a whole number
    decimals: Tensor  # how many of the digits are behind the point
    has_point: Tensor
    length: Tensor  # characters of the result
    position: Tensor  # of the next one

    @classmethod
    def idle(cls, rows: int, device: torch.device) -> "Registers":
        """Rows that have read nothing."""
        return cls(*(torch.zeros(rows, dtype=torch.float64, device=device) for _ in fields(cls)))

    def __getitem__(self, rows: Tensor) -> "Registers":
        return Registers(*(getattr(self, item.name)[rows] for item in fields(self)))

    def __setitem__(self, rows: Tensor, values: "Registers") -> None:
        for item in fields(self):
            getattr(self, item.name)[rows] = getattr(values, item.name)


class Calculator:
    """Reads tokens and computes what an equation's result must be."""

    def __init__(self, tokenizer: Any, vocabulary_size: int, device: torch.device) -> None:
        """Look up the tokens; each character of a number must be a token of its own."""
        ids = tokenizer.encode(_EXAMPLE, add_special_tokens=False)
        if [tokenizer.decode([token]) for token in ids] != list(_EXAMPLE):
            raise FormatError(
                "reasoner.json: calculator needs a tokenizer with a token for each character of "
                f"{_EXAMPLE.strip()!r}, and this one joins some of them; set it to false"
            )
        token_of = dict(zip(_EXAMPLE, ids, strict=True))
        kinds = torch.full((vocabulary_size,), _OTHER)
        values = torch.zeros(vocabulary_size)
        for value, symbol in enumerate(_DIGITS):
            kinds[token_of[symbol]], values[token_of[symbol]] = _DIGIT, value
        for value, symbol in enumerate(_OPERATORS):
            kinds[token_of[symbol]], values[token_of[symbol]] = _OPERATOR, value
        kinds[token_of["="]], kinds[token_of["."]] = _EQUALS, _POINT
        self._kinds, self._values = kinds.to(device), values.double().to(device)
        self._digit_ids = torch.tensor([token_of[d] for d in _DIGITS]).to(device)
        # All signs that equations are written in, and the end of a line: (A,).
        self.sign_ids = torch.tensor([token_of[sign] for sign in dict.fromkeys(_EXAMPLE)]).to(
            device
        )
        self._minus, self._point, self._newline = token_of["-"], token_of["."], token_of["\n"]

    def read(self, state: Registers, tokens: Tensor) -> Registers:
        """State after one more token (n,)."""
        kind, value = self._kinds[tokens], self._values[tokens]
        phase = state.phase
        is_digit, is_operator = kind == _DIGIT, kind == _OPERATOR
        in_number, after_operator = phase == _IN_NUMBER, phase == _AFTER_OPERATOR
        begins = is_digit & (phase == _IDLE)
        is_new = begins | (is_digit & after_operator)
        goes_on = is_digit & in_number
        gets_point = (kind == _POINT) & in_number & (state.has_point == 0)
        total, term = _folded(state)
        is_folded = in_number & (is_operator | (kind == _EQUALS))
        operator_count = state.operator_count + (is_operator & in_number)
        result = _result(total + term)
        is_result = in_number & (kind == _EQUALS) & (operator_count > 0) & result.is_exact
        is_writing = phase == _WRITING
        position = torch.where(is_writing, state.position + 1, 0.0)
        zero = torch.zeros_like(total)

        is_end = (kind == _OTHER) | (kind == _EQUALS)
        following = torch.where(is_end, _IDLE, _WAITING).to(phase.dtype)
        following = torch.where(is_new | goes_on | gets_point, _IN_NUMBER, following)
        following = torch.where(is_operator & in_number, _AFTER_OPERATOR, following)
        following = torch.where(is_result, _WRITING, following)
        is_within = is_writing & (position < state.length)
        written = torch.where(is_within, _WRITING, _AFTER_RESULT)
        following = torch.where(is_writing, written, following)

        digits = torch.where(goes_on, state.digits * 10 + value, state.digits)
        digits = torch.where(is_new, value, digits)
        has_point = torch.where(is_new, zero, torch.where(gets_point, 1.0, state.has_point))
        decimals = state.decimals + (goes_on & (state.has_point > 0))
        decimals = torch.where(is_new, zero, decimals)
        return Registers(
            phase=following,
            total=torch.where(begins, zero, torch.where(is_folded, total, state.total)),
            term=torch.where(begins, zero, torch.where(is_folded, term, state.term)),
            operator=torch.where(
                begins, float(_ADD), torch.where(is_operator & in_number, value, state.operator)
            ),
            operator_count=torch.where(begins, zero, operator_count),
            digits=torch.where(is_result, result.digits, digits),
            decimals=torch.where(is_result, result.decimals, decimals),
            has_point=has_point,
            length=torch.where(is_result, result.length, state.length),
            position=position,
        )

    def due(self, state: Registers) -> tuple[Tensor, Tensor]:
        """Which rows must go on with a result, and with which token: (n,) each."""
        is_negative = (state.total + state.term < 0).long()
        digits, decimals = state.digits.long(), state.decimals.long()
        has_point = (decimals > 0).long()
        whole = state.length.long() - is_negative - has_point - decimals  # digits before the point
        place = state.position.long() - is_negative
        at_point = (has_point > 0) & (place == whole)
        behind_point = (has_point > 0) & (place > whole)
        power = (whole + decimals - 1 - place + behind_point.long()).clamp(min=0)
        digit = digits // (10**power) % 10
        tokens = torch.where(at_point, self._point, self._digit_ids[digit])
        tokens = torch.where(place < 0, self._minus, tokens)
        return state.phase == _WRITING, tokens

    def correct(self, state: Registers, chosen: Tensor) -> Tensor:
        """Put results in place of the chosen tokens (n,), and an end where digits would lengthen one."""
        is_due, results = self.due(state)
        kind = self._kinds[chosen]
        is_longer = (state.phase == _AFTER_RESULT) & ((kind == _DIGIT) | (kind == _POINT))
        return torch.where(is_due, results, torch.where(is_longer, self._newline, chosen))

    def computed(self, lines: Sequence[Sequence[int]]) -> list[tuple[bool, ...]]:
        """Which tokens of each text the calculator would write, if it writes just these."""
        width = max((len(line) for line in lines), default=0)
        rows = torch.full((len(lines), width), -1, device=self._kinds.device)
        for row, line in enumerate(lines):
            rows[row, : len(line)] = torch.tensor(line)
        state = Registers.idle(len(lines), rows.device)
        columns = []
        for column in rows.T:
            is_due, tokens = self.due(state)
            columns.append(is_due & (tokens == column))
            state = self.read(state, column.clamp(min=0))
        found = torch.stack(columns, dim=1).tolist() if columns else [[] for _ in lines]
        return [tuple(own[: len(line)]) for own, line in zip(found, lines, strict=True)]


def _folded(state: Registers) -> tuple[Tensor, Tensor]:
    """Total and last term with the number that was read; products come before sums."""
    number = state.digits / 10**state.decimals
    is_sum = state.operator <= _SUBTRACT
    total = torch.where(is_sum, state.total + state.term, state.total)
    term = torch.where(state.operator == _DIVIDE, state.term / number, state.term * number)
    term = torch.where(state.operator == _ADD, number, term)
    term = torch.where(state.operator == _SUBTRACT, -number, term)
    return total, term


@dataclass(frozen=True)
class _Result:
    """How a value is written: (n,) each."""

    digits: Tensor
    decimals: Tensor
    length: Tensor
    is_exact: Tensor  # few decimals and digits are enough


def _result(value: Tensor) -> _Result:
    size = value.abs()
    digits = decimals = torch.zeros_like(size)
    is_exact = torch.zeros_like(size, dtype=torch.bool)
    for count in range(_MAX_DECIMALS, -1, -1):  # the fewest decimals that are enough come last
        scaled = size * 10**count
        is_enough = (scaled - scaled.round()).abs() <= _TOLERANCE * scaled.clamp(min=1.0)
        digits = torch.where(is_enough, scaled.round(), digits)
        decimals = torch.where(is_enough, float(count), decimals)
        is_exact |= is_enough
    whole = torch.ones_like(size)
    for power in range(1, _MAX_DIGITS):
        whole = whole + (size.floor() >= 10**power)
    length = whole + decimals + (decimals > 0) + (value < 0)
    return _Result(digits, decimals, length, is_exact & (digits < 10**_MAX_DIGITS))
