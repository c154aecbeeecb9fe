import math
from decimal import Decimal
from itertools import combinations

import pytest
import torch

from latent import quality


def test_the_complement_by_hand() -> None:
    logprobs = torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.6, 0.3]]).log()
    complements = quality.log_complement(logprobs, torch.tensor([1, 2]))
    assert complements.exp().tolist() == pytest.approx([0.75, 0.7])


@pytest.mark.parametrize("logit", [-60.0, -27.7, 27.7, 60.0])
def test_log_odds_are_finite_and_right_within_1e12_of_certainty(logit: float) -> None:
    logprobs = torch.tensor([logit, 0.0], dtype=torch.float64).log_softmax(-1)
    odds = logprobs[0] - quality.log_complement(logprobs, torch.tensor(0))
    assert float(odds) == pytest.approx(logit)


def test_answer_log_odds_by_hand_and_at_the_edges() -> None:
    p = torch.tensor([[0.5, 0.5], [0.9, 0.8]], dtype=torch.float64)
    expected = [math.log(0.25 / 0.75), math.log(0.72 / 0.28)]
    assert quality.answer_log_odds(p.log(), (1 - p).log()).tolist() == pytest.approx(expected)
    gaps = torch.tensor([20.0, 60.0], dtype=torch.float64)  # of each token's logit over the other
    logits = torch.stack((gaps, torch.zeros(2, dtype=torch.float64)), dim=-1)  # (2, V=2)
    logprobs = logits.log_softmax(-1)
    complements = quality.log_complement(logprobs, torch.zeros(2, dtype=torch.long))
    assert complements.tolist() == pytest.approx([-20.0, -60.0])
    pair = torch.stack((logprobs[0, 0], logprobs[0, 0]))
    both = quality.answer_log_odds(pair, complements[:1].expand(2))
    assert float(both) == pytest.approx(20.0 - math.log(2), abs=1e-6)


def test_sampling_gain_is_the_best_of_the_differences() -> None:
    sampled = torch.tensor([[0.2, 1.5, -3.0], [-2.0, -1.0, -4.0]])
    gains = quality.sampling_gain(sampled, torch.tensor([0.5, 0.0]))
    assert gains.tolist() == pytest.approx([1.0, -1.0])
    assert quality.gain_rate(gains) == 0.5
    assert quality.gain_rate(torch.tensor([0.5])) == 0.0, "the threshold itself is no gain"


def test_js_by_hand() -> None:
    p = torch.tensor([0.5, 0.5], dtype=torch.float64).log()
    q = torch.tensor([1.0, 0.0], dtype=torch.float64).log()
    by_hand = 0.5 * (0.5 * math.log(0.5 / 0.75) + 0.5 * math.log(0.5 / 0.25)) + 0.5 * math.log(
        1 / 0.75
    )
    assert float(quality.js_divergence(p, q)) == pytest.approx(by_hand)
    assert float(quality.js_divergence(q, p)) == pytest.approx(by_hand)
    assert float(quality.js_divergence(p, p)) == 0.0
    apart = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).log()
    assert float(quality.js_divergence(apart[0], apart[1])) == pytest.approx(math.log(2))
    assert quality.js_divergence(p.expand(4, 2), q).shape == (4,)


def test_signal_to_noise_by_hand() -> None:
    mean = torch.tensor([[[3.0, 4.0], [0.0, 0.0]], [[0.0, 0.0], [2.0, 2.0]]])  # (N=2, K=2, D=2)
    std = torch.full_like(mean, 2.0)
    rms = math.sqrt(12.5) / 2
    assert quality.signal_to_noise(mean, std).tolist() == pytest.approx([rms / 2, 0.5])


def test_pass_at_n_is_the_mean_over_all_subsets() -> None:
    is_correct = [True, False, False, True, False]
    for budget in range(1, 6):
        subsets = list(combinations(is_correct, budget))
        expected = sum(any(subset) for subset in subsets) / len(subsets)
        assert quality.pass_at(5, 2, budget) == pytest.approx(expected)
    assert quality.pass_at(128, 0, 128) == 0.0
    assert quality.pass_at(128, 128, 1) == 1.0
    with pytest.raises(ValueError, match="budget"):
        quality.pass_at(4, 2, 5)


def test_unique_answers() -> None:
    assert quality.unique_answers([Decimal(3), None, Decimal(3), Decimal("4.0005")]) == 2
