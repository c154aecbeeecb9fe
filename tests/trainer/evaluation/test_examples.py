"""Examples for the page are questions that the reasoner really answers."""

import latent
from latent.answers import parse_answer, same_answer
from trainer.data.sources import load_dataset
from trainer.evaluation.examples import choose_examples


def test_the_chosen_questions_are_answered_by_the_vote() -> None:
    reasoner = latent.load("coconut-tiny")
    chosen = choose_examples(reasoner, load_dataset("embedded:test", 12), 2)
    assert 1 <= len(chosen) <= 2
    for example in chosen:
        solved = reasoner.solve(example.question, budget=32, seed=0)
        assert same_answer(solved.candidates[0].answer, parse_answer(example.answer))
