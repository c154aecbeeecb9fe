"""The embedded task: exact, varied, and without leaks between splits."""

import hashlib
import random
import re
from collections import Counter

import pytest

from latent.errors import InputError
from trainer.data.problems import SPLITS, generate
from trainer.data.problems.chains import Chain, Operation, draw_chain, split_of
from trainer.data.problems.generator import verbalise
from trainer.data.problems.situations import OUT_OF_DISTRIBUTION, TRAINING

SAMPLE = {split: [generate(split, index) for index in range(400)] for split in SPLITS}
MANY = [generate("train", index) for index in range(5000)]


def test_the_shipped_reasoners_task_has_not_changed() -> None:
    digest = hashlib.sha256()
    for split in SPLITS:
        for index in range(300):
            digest.update(repr(generate(split, index)).encode())
    assert digest.hexdigest()[:16] == "485b5622c262690a"


def test_the_same_arguments_give_the_same_problem_and_others_do_not() -> None:
    assert generate("test", 7, seed=3) == generate("test", 7, seed=3)
    assert generate("test", 7, seed=3) != generate("test", 7, seed=4)
    assert generate("test", 7, seed=3) != generate("test", 8, seed=3)


@pytest.mark.parametrize("split", SPLITS)
def test_every_step_is_true_and_uses_the_result_before_it(split: str) -> None:
    for problem in SAMPLE[split]:
        before = None
        for step in problem.steps:
            left, symbol, right, result = re.fullmatch(r"(\d+)([-+*/])(\d+)=(\d+)", step).groups()  # type: ignore[union-attr]
            assert before in (None, left)
            exact = {
                "+": int(left) + int(right),
                "-": int(left) - int(right),
                "*": int(left) * int(right),
                "/": int(left) / int(right),
            }[symbol]
            assert exact == int(result)
            before = result
        assert before == str(problem.answer)
        assert 2 <= problem.operations == len(problem.steps) <= 6
        assert 0 <= problem.answer <= 10_098


def test_no_chain_of_numbers_belongs_to_two_splits() -> None:
    for split in ("train", "validation", "test"):
        for index, problem in enumerate(SAMPLE[split]):
            chain = _chain(problem.steps)
            assert split_of(chain) == split, (split, index)
    assert all(split_of(_chain(problem.steps)) == "test" for problem in SAMPLE["ood"])


def test_out_of_distribution_shares_no_situation_and_no_phrasing_with_training() -> None:
    known = {s.name for s in TRAINING}
    assert not known & {s.name for s in OUT_OF_DISTRIBUTION}
    assert {p.situation for p in SAMPLE["ood"]} <= {s.name for s in OUT_OF_DISTRIBUTION}
    slots = ("start", "product", "sum", "add", "sub", "mul", "div", "half", "ask")
    seen = {phrase for s in TRAINING for slot in slots for phrase in getattr(s, slot)}
    held = {phrase for s in OUT_OF_DISTRIBUTION for slot in slots for phrase in getattr(s, slot)}
    assert not seen & held


def test_there_are_many_situations_and_every_one_occurs() -> None:
    assert len(TRAINING) >= 25
    assert {p.situation for p in MANY} == {s.name for s in TRAINING}


def test_answers_are_too_many_to_guess() -> None:
    counts = Counter(problem.answer for problem in MANY)
    assert len(counts) > 800
    assert counts.most_common(1)[0][1] / len(MANY) < 0.02


def test_texts_are_varied_and_complete() -> None:
    texts = [problem.question for problem in MANY]
    assert len(set(texts)) == len(texts)
    assert not any("{" in text or "}" in text or "  " in text for text in texts)
    assert all(text[0].isupper() or text[0].isdigit() for text in texts)
    words = " ".join(texts)
    for sign in ("a dozen", "twice", "half", "doubles", "three times", "After that, ", ", and "):
        assert sign in words
    assert sum(text.endswith("?") for text in texts) < len(texts)  # the question may come first


def test_an_aside_brings_a_number_that_no_step_uses() -> None:
    chain = Chain(7, (Operation("+", 5), Operation("-", 3)))
    texts = {verbalise(chain, TRAINING[0], random.Random(seed)) for seed in range(60)}
    assert any("years old" in text for text in texts)
    assert any("years old" not in text for text in texts)


def test_values_stay_whole_positive_and_small() -> None:
    rng = random.Random(1)
    for _ in range(3000):
        chain = draw_chain(rng)
        assert all(2 <= value <= 10_098 for value in chain.values)


@pytest.mark.parametrize(("split", "index"), [("dev", 0), ("test", -1)])
def test_an_unknown_split_or_a_negative_index_is_refused(split: str, index: int) -> None:
    with pytest.raises(InputError):
        generate(split, index)


def _chain(steps: tuple[str, ...]) -> Chain:
    parts = [re.fullmatch(r"(\d+)([-+*/])(\d+)=\d+", step).groups() for step in steps]  # type: ignore[union-attr]
    return Chain(int(parts[0][0]), tuple(Operation(symbol, int(n)) for _, symbol, n in parts))
