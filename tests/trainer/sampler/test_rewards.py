import math

import pytest
import torch

from trainer.sampler.config import PRESETS, SamplerConfig
from trainer.sampler.rewards import (
    batch_scaled,
    is_uniform,
    pass_at_k_scores,
    score,
    shaping,
    standardised,
)

T, F = True, False


def close(actual: torch.Tensor, expected: list[list[float]]) -> None:
    torch.testing.assert_close(actual, torch.tensor(expected, dtype=torch.float64))


def test_shaping_ranks_by_confidence_inside_right_and_wrong():
    is_correct = torch.tensor([[T, T, T, F, F, F]])
    logprobs = torch.tensor([[-1.0, -2.0, -3.0, -1.0, -1.0, -4.0]])
    up = math.tanh(math.sqrt(1.5))  # (1, 2, 3): mean 2, population σ √(2/3)
    # (1, 1, 4): mean 2, σ √2; the unsure wrong one is spared, the sure ones pay.
    sure, unsure = math.tanh(1 / math.sqrt(2)), math.tanh(2 / math.sqrt(2))
    close(shaping(is_correct, logprobs, 1.0), [[up, 0.0, -up, -sure, -sure, unsure]])


def test_tau_divides_the_z_score():
    is_correct = torch.tensor([[T, T, T]])
    logprobs = torch.tensor([[-1.0, -2.0, -3.0]])
    soft = math.tanh(math.sqrt(1.5) / 2)
    close(shaping(is_correct, logprobs, 2.0), [[soft, 0.0, -soft]])


def test_fewer_than_three_or_equally_sure_trajectories_are_not_ranked():
    is_correct = torch.tensor([[T, T, F, F, F]])
    logprobs = torch.tensor([[-1.0, -2.0, -0.3, -0.3, -0.3]])
    close(shaping(is_correct, logprobs, 1.0), [[0.0] * 5])


def test_wrong_trajectories_score_what_their_set_earns_anyway():
    # n = 4, c = 1, k = 2: ρ = 1 − C(2, 1)/C(3, 1) = 1/3.  c = 2: 1 − C(1, 1)/C(3, 1) = 2/3.
    is_correct = torch.tensor([[T, F, F, F], [T, T, F, F], [F, F, F, F], [T, T, T, F]])
    close(
        pass_at_k_scores(is_correct, 2),
        [[1, 1 / 3, 1 / 3, 1 / 3], [1, 1, 2 / 3, 2 / 3], [0, 0, 0, 0], [1, 1, 1, 1]],
    )


def test_pass_at_one_scores_are_plain_correctness():
    is_correct = torch.tensor([[T, F, F], [T, T, F]])
    close(pass_at_k_scores(is_correct, 1), [[1, 0, 0], [1, 1, 0]])


def test_pass_at_k_scores_average_to_the_unbiased_gradient():
    """Weigh every subset of k by whether it holds a right one: the score is its mean over subsets."""
    from itertools import combinations

    row, k = [T, F, F, T, F, F], 3
    scores = pass_at_k_scores(torch.tensor([row]), k)[0]
    for i in range(len(row)):
        subsets = [s for s in combinations(range(len(row)), k) if i in s]
        by_hand = sum(any(row[j] for j in s) for s in subsets) / len(subsets)
        assert scores[i].item() == pytest.approx(by_hand)


def test_rewards_are_standardised_by_the_population_sigma():
    close(
        standardised(torch.tensor([[1.0, 1.0, 1.0, -1.0]]).double(), 0.0),
        [[1 / math.sqrt(3)] * 3 + [-math.sqrt(3)]],
    )


def test_a_group_without_spread_has_no_advantage():
    close(standardised(torch.tensor([[0.7, 0.7, 0.7]]).double(), 0.0), [[0.0, 0.0, 0.0]])


def test_the_sigma_floor_keeps_small_differences_small():
    rewards = torch.tensor([[-1.1, -0.9]]).double()
    close(standardised(rewards, 0.0), [[-1.0, 1.0]])
    close(standardised(rewards, 0.5), [[-0.2, 0.2]])


def test_batch_scaling_makes_the_rms_one_over_groups_with_spread():
    advantages = torch.tensor([[3.0, -3.0], [0.0, 0.0], [1.0, -1.0]]).double()
    rms = math.sqrt(5)
    close(batch_scaled(advantages), [[3 / rms, -3 / rms], [0.0, 0.0], [1 / rms, -1 / rms]])
    close(batch_scaled(torch.zeros(1, 2).double()), [[0.0, 0.0]])


def test_uniform_groups_are_all_right_or_all_wrong():
    assert is_uniform(torch.tensor([[T, T], [F, F], [T, F]])).tolist() == [T, T, F]


def test_the_mean_objective_is_correctness_plus_shaping_standardised():
    config = SamplerConfig(group_size=4, k=2, alpha=0.5)
    is_correct = torch.tensor([[T, F, F, F]])
    logprobs = torch.tensor([[-9.0, -1.0, -2.0, -3.0]])
    step = 0.5 * math.tanh(math.sqrt(1.5))
    rewards = torch.tensor([[1.0, -1 - step, -1.0, -1 + step]], dtype=torch.float64)
    scores = score(is_correct, logprobs, config)
    torch.testing.assert_close(scores.rewards, rewards)
    off = rewards - rewards.mean()
    torch.testing.assert_close(scores.advantages, off / off.square().mean().sqrt())


def test_alpha_zero_rewards_accuracy_only():
    config = SamplerConfig(group_size=4, k=2, alpha=0.0)
    is_correct = torch.tensor([[T, F, F, F]])
    scores = score(is_correct, torch.tensor([[-9.0, -1.0, -2.0, -3.0]]), config)
    close(scores.rewards, [[1.0, -1.0, -1.0, -1.0]])


def test_the_paper_keeps_uniform_groups_and_the_default_skips_them():
    is_correct = torch.tensor([[F] * 32])
    logprobs = -torch.arange(32.0)[None]
    assert score(is_correct, logprobs, PRESETS["paper"]).advantages.abs().max() > 1
    assert score(is_correct, logprobs, PRESETS["default"]).advantages.abs().max() == 0
