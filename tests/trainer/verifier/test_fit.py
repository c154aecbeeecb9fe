"""The ranking loss by hand, and that a verifier learns what tells right from wrong."""

import math

import pytest
import torch

from latent.verifier import Verifier
from latent.verifier_file import VerifierShape
from trainer.runs.divergence import DivergedError
from trainer.verifier.config import VerifierConfig
from trainer.verifier.examples import Examples
from trainer.verifier.fit import fit, ranking_loss, step_count

SHAPE = VerifierShape(width=4, thoughts=2, answer_tokens=3, hidden=16)


def examples(questions: int, seed: int) -> Examples:
    """Right trajectories have a larger first number in their third state."""
    generator = torch.Generator().manual_seed(seed)
    states = torch.randn(questions, 4, 6, 4, generator=generator)
    is_right = torch.tensor([[True, False, False, True]]).repeat(questions, 1)
    states[:, :, 2, 0] += 2.0 * is_right
    return Examples(states.half(), torch.zeros(questions, 4, 3), is_right)


def test_the_loss_is_the_mean_over_pairs_of_a_question() -> None:
    logits = torch.tensor([[1.0, 0.0, 3.0], [0.5, 0.5, 0.0]])
    is_right = torch.tensor([[True, False, False], [True, False, True]])
    pairs = (1.0 - 0.0, 1.0 - 3.0, 0.5 - 0.5, 0.0 - 0.5)
    expected = sum(math.log1p(math.exp(-gap)) for gap in pairs) / len(pairs)
    assert float(ranking_loss(logits, is_right)) == pytest.approx(expected)


def test_a_verifier_learns_to_tell_right_from_wrong() -> None:
    torch.manual_seed(0)
    verifier = Verifier(SHAPE, dropout=0.1).eval()
    held = examples(64, seed=1)

    def loss() -> float:
        with torch.no_grad():
            return float(ranking_loss(verifier(held.states.float(), held.logprobs), held.is_right))

    before, steps = loss(), []
    config = VerifierConfig(hidden=16, epochs=8, prompts=24, warmup=4, lr=0.01)
    fit(verifier, examples(100, seed=2), config, lambda step, _: steps.append(step))
    assert loss() < 0.6 * before
    assert steps == list(range(1, step_count(100, config) + 1))
    assert step_count(100, config) == 8 * 5
    assert not verifier.training


def test_a_diverged_training_is_an_error() -> None:
    broken = examples(8, seed=0)
    broken.states[0, 0, 0, 0] = torch.inf
    with pytest.raises(DivergedError, match="diverged at step"):
        fit(Verifier(SHAPE), broken, VerifierConfig(hidden=16, epochs=1), lambda *_: None)
