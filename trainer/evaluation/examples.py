"""Chooses example questions that a reasoner answers, and writes them into its folder for the page.

    python -m trainer.evaluation.examples --model coconut-tiny --data embedded:test

An example is a question whose majority is right by a wide margin. Half of them, where there are so
many, are answered wrongly by the deterministic trajectory: those show what a budget is for.
"""

import argparse
import sys

from latent.answers import parse_answer, same_answer
from latent.errors import GtsError, InputError
from latent.examples import Example, write_examples
from latent.reasoner import Reasoner
from latent.rollout import Ask, rollout
from latent.store import load_reasoner
from latent.trajectory import DETERMINISTIC
from latent.votes import tally
from latent.zoo import DEFAULT_LATENT_MODEL, resolve_model
from trainer.data.rows import Dataset
from trainer.data.sources import load_dataset

__all__ = ["choose_examples"]

_BUDGET = 32
_MIN_SHARE = 0.6  # so that another seed gives the same answer


def choose_examples(reasoner: Reasoner, data: Dataset, count: int) -> list[Example]:
    """Choose up to `count` questions that the reasoner's default sampler answers, in data order."""
    sampler = reasoner.sampler(None)
    plain: list[Example] = []
    helped: list[Example] = []  # wrong without a budget
    for placed in data.rows:
        question, truth = placed.row.question, parse_answer(placed.row.answer)
        ask = Ask(reasoner.encode(question), 0, (DETERMINISTIC, *range(_BUDGET)))
        trajectories = rollout(reasoner, sampler, [ask])[0].trajectories
        winner = tally(trajectories[1:]).winner
        if winner.share < _MIN_SHARE or not same_answer(winner.answer, truth):
            continue
        is_plain = same_answer(trajectories[0].answer, truth)
        (plain if is_plain else helped).append(Example(question, placed.row.answer))
    chosen = helped[: count // 2]
    return [*plain[: count - len(chosen)], *chosen]


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m trainer.evaluation.examples",
        description="Choose questions that a reasoner answers, for the page at `/` and /v1/models.",
    )
    parser.add_argument(
        "--model", default=DEFAULT_LATENT_MODEL, help="an embedded name or a folder"
    )
    parser.add_argument("--data", default="embedded:test", help="where questions are taken from")
    parser.add_argument("--limit", type=int, default=100, help="questions to try")
    parser.add_argument("--count", type=int, default=4, help="examples to keep")
    options = parser.parse_args()
    try:
        folder = resolve_model(options.model)
        reasoner = load_reasoner(folder, dtype="auto")
        examples = choose_examples(
            reasoner, load_dataset(options.data, options.limit), options.count
        )
        if not examples:
            raise InputError(f"{options.model} answers none of the {options.limit} questions")
        write_examples(folder, reasoner.fingerprint, examples)
    except GtsError as error:
        sys.exit(f"error: {error}")
    for example in examples:
        print(f"{example.answer:>8}  {example.question}")


if __name__ == "__main__":
    main()
