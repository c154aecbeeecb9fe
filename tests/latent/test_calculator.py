"""The calculator writes the results of equations while a text reasoner decodes."""

from fractions import Fraction

import pytest
import torch

from latent.calculator import Calculator, Registers
from latent.equations import are_equations_true
from latent.errors import FormatError
from latent.rollout import Ask, rollout
from latent.samplers import Sampler
from latent.specs import SamplerSpec
from tests.reasoners import make_reasoner, tokenizer

CPU = torch.device("cpu")


class Characters:
    """A tokenizer whose tokens are characters."""

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Codes of the characters."""
        return [ord(character) for character in text]

    def decode(self, ids: list[int]) -> str:
        """Characters of the codes."""
        return "".join(map(chr, ids))


def completed(text: str) -> str:
    """The text with all that the calculator adds at its end."""
    calculator = Calculator(Characters(), 128, CPU)
    state = Registers.idle(1, CPU)
    for character in text:
        state = calculator.read(state, torch.tensor([ord(character)]))
    while (due := calculator.due(state))[0].item():
        text += chr(int(due[1]))
        state = calculator.read(state, due[1])
    return text


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("12+5=", "17"),
        ("9+3=12\n100-100=", "0"),
        ("3-5=", "-2"),
        ("2*3+4*5=", "26"),
        ("10-2-3=", "5"),
        ("10/4=", "2.5"),
        ("0.5*20=", "10"),
        ("1.25+2.50=", "3.75"),
        ("0.1+0.2=", "0.3"),
        ("0.1*0.5=", "0.05"),
        ("4-4.25=", "-0.25"),
        ("999999*1000=", "999999000"),
        ("<<48/2=", "24"),
        ("x=12+5=", "17"),
    ],
)
def test_results_are_exact(text: str, result: str) -> None:
    assert completed(text) == text + result


@pytest.mark.parametrize(
    "text",
    [
        "",
        "12+5",  # no result is asked for
        "5=",  # not an operation
        "x=",
        "10/3=",  # no short decimal: the reasoner rounds
        "7/0=",
        "3+=",
        "1.2.3+4=",
        "6+6=12-3=",  # a result is not an operand
    ],
)
def test_what_is_no_short_exact_result_is_left_to_the_reasoner(text: str) -> None:
    assert completed(text) == text


def test_random_equations_have_the_results_of_exact_arithmetic() -> None:
    generator = torch.Generator().manual_seed(0)
    for _ in range(300):
        first, second = torch.randint(0, 2000, (2,), generator=generator).tolist()
        operator = "+-*"[int(torch.randint(3, (1,), generator=generator))]
        value = {"+": first + second, "-": first - second, "*": first * second}[operator]
        assert completed(f"{first}{operator}{second}=") == f"{first}{operator}{second}={value}"
        quotient = Fraction(first, second + 1)
        shown = completed(f"{first}/{second + 1}=").partition("=")[2]
        assert shown == "" or Fraction(shown) == quotient


def test_the_computed_tokens_of_a_text_are_those_behind_the_sign() -> None:
    calculator = Calculator(Characters(), 128, CPU)
    texts = ["12+5=17\n17-3=14\n", "10/3=3.33\n", "12+5=18\n"]
    marks = calculator.computed([Characters().encode(text) for text in texts])
    shown = [
        "".join(character if mark else "_" for character, mark in zip(text, own, strict=True))
        for text, own in zip(texts, marks, strict=True)
    ]
    assert shown == ["_____17______14_", "__________", "_____1__"]


def test_rows_are_read_independently() -> None:
    calculator = Calculator(Characters(), 128, CPU)
    texts = ["12+5=17\n", "8/2=4\n17-", "no sum\n9", "3*3=9\n2+2"]
    width = max(map(len, texts))
    rows = torch.tensor([Characters().encode(text.ljust(width)) for text in texts])
    together, alone = Registers.idle(4, CPU), [Registers.idle(1, CPU) for _ in texts]
    for column in rows.T:
        together = calculator.read(together, column)
        alone = [
            calculator.read(one, token[None]) for one, token in zip(alone, column, strict=True)
        ]
        for name, value in vars(together).items():
            assert value.tolist() == [getattr(one, name).item() for one in alone], name


def test_a_reasoner_with_a_calculator_writes_no_false_equation() -> None:
    """A random reasoner that can write nothing but digits, signs and line ends."""
    tok = tokenizer()
    symbols = {tok.encode(symbol, add_special_tokens=False)[0] for symbol in "0123456789+-*=\n"}
    others = tuple(token for token in range(len(tok)) if token not in symbols)
    asks = [Ask((5, 6, 7), seed, tuple(range(16))) for seed in range(6)]
    false = {}
    for calculator in (False, True):
        reasoner = make_reasoner(
            "cot", max_reasoning_tokens=30, suppressed_ids=others, calculator=calculator
        )
        done = rollout(reasoner, Sampler(SamplerSpec.parse("token:20.0")), asks)
        # The limit may cut the last result.
        lines = [t.text.rpartition("\n")[0] for one in done for t in one.trajectories]
        false[calculator] = sum(not are_equations_true(text) for text in lines)
    assert false[False] > 5
    assert false[True] == 0


def test_the_probability_of_a_text_counts_what_the_reasoner_wrote_itself() -> None:
    tok = tokenizer()
    symbols = {tok.encode(symbol, add_special_tokens=False)[0] for symbol in "0123456789+-*=\n"}
    others = tuple(token for token in range(len(tok)) if token not in symbols)
    reasoner = make_reasoner("cot", max_reasoning_tokens=30, suppressed_ids=others, calculator=True)
    asks = [Ask((5, 6, 7), seed, tuple(range(16))) for seed in range(2)]
    done = rollout(reasoner, Sampler(SamplerSpec.parse("token:20.0")), asks)
    found = [trajectory for one in done for trajectory in one.trajectories]
    computed = reasoner.calculator.computed([each.tokens for each in found])
    assert sum(map(sum, computed)) > 20, "results must be written at all"
    for each, marks in zip(found, computed, strict=True):
        assert each.answer_start is None
        own = [p for p, mark in zip(each.token_logprobs, marks, strict=True) if not mark]
        assert each.chain_logprob == pytest.approx(sum(own))


def test_the_probability_of_a_text_ends_where_the_answer_begins() -> None:
    tok = tokenizer()
    symbols = {tok.encode(symbol, add_special_tokens=False)[0] for symbol in "0123456789+-*=\n"}
    others = tuple(token for token in range(len(tok)) if token not in symbols)
    prefix = (tok.encode("4", add_special_tokens=False)[0],)
    reasoner = make_reasoner(
        "cot",
        max_reasoning_tokens=30,
        suppressed_ids=others,
        calculator=True,
        answer_prefix_ids=prefix,
    )
    asks = [Ask((5, 6, 7), seed, tuple(range(-1, 16))) for seed in range(4)]
    done = rollout(reasoner, Sampler(SamplerSpec.parse("token:20.0")), asks)
    found = [trajectory for one in done for trajectory in one.trajectories]
    ends = [each.answer_start for each in found]
    assert len({end for end in ends if end is not None}) > 5, "answers must begin at several places"
    computed = reasoner.calculator.computed([each.tokens for each in found])
    for each, marks, end in zip(found, computed, ends, strict=True):
        before = list(zip(each.token_logprobs, marks, strict=True))[:end]
        own = [p for p, mark in before if not mark]
        assert each.chain_logprob == pytest.approx(sum(own), abs=1e-9)


def test_a_tokenizer_that_joins_digits_is_refused() -> None:
    class Pairs(Characters):
        def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
            return [ord(character) for character in text[::2]]

    with pytest.raises(FormatError, match="calculator needs a tokenizer with a token for each"):
        Calculator(Pairs(), 128, CPU)


def test_a_reasoner_without_text_or_projection_has_no_calculator() -> None:
    with pytest.raises(FormatError, match="calculator needs a cot reasoner, or a codi with"):
        make_reasoner("coconut", calculator=True)
