import math
from dataclasses import replace

import pytest
import torch
from torch.distributions import Independent, Normal, kl_divergence

from latent.samplers import GaussianThoughtSampler
from trainer.sampler.config import SamplerConfig
from trainer.sampler.objective import gaussian_kl, learning_rate, loss, trajectory_log_prob

M, K, D = 5, 3, 4
EMA = SamplerConfig(beta=0.3)
PPO = SamplerConfig(ratio="old", clip="ppo", epsilon_c=0.2, beta=0.0)


def random_heads(seed: int) -> GaussianThoughtSampler:
    torch.manual_seed(seed)
    heads = GaussianThoughtSampler(D).double()
    for parameter in heads.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return heads


class Fixed(GaussianThoughtSampler):
    """A sampler whose log q is given."""

    def __init__(self, log_probs: list[float]) -> None:
        super().__init__(1)
        self.log_probs = torch.nn.Parameter(torch.tensor(log_probs, dtype=torch.float64))

    def log_prob(self, context: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return self.log_probs[:, None]


def clipped(
    log_ratio: float, advantage: float, config: SamplerConfig
) -> tuple[float, float, float]:
    """Loss of one trajectory, its derivative by log q, and the clip fraction."""
    heads, empty = Fixed([log_ratio]), torch.zeros(1, 1, 1)
    value, metrics = loss(
        heads,
        GaussianThoughtSampler(1),
        empty,
        empty,
        torch.tensor([advantage], dtype=torch.float64),
        torch.zeros(1, dtype=torch.float64),
        config,
    )
    value.backward()
    return value.item(), float(heads.log_probs.grad), float(metrics.clipfrac)


@pytest.fixture
def batch() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(3)
    shape = (M, K, D)
    return (
        torch.randn(shape, dtype=torch.float64),
        torch.randn(shape, dtype=torch.float64),
        torch.randn(M, dtype=torch.float64),
    )


def test_log_q_is_the_sum_over_thoughts_of_the_mean_over_dimensions(batch):
    contexts, z, _ = batch
    heads = random_heads(0)
    mean, log_std = heads(contexts)
    by_torch = Normal(mean, log_std.exp()).log_prob(z).mean(-1).sum(-1)
    torch.testing.assert_close(trajectory_log_prob(heads, contexts, z), by_torch)


def test_the_kl_is_that_of_torch(batch):
    contexts, _, _ = batch
    (mean, log_std), (mean_ref, log_std_ref) = random_heads(0)(contexts), random_heads(1)(contexts)
    left, right = Normal(mean, log_std.exp()), Normal(mean_ref, log_std_ref.exp())
    ours = gaussian_kl(mean, log_std, mean_ref, log_std_ref)
    torch.testing.assert_close(ours, kl_divergence(left, right))
    whole = kl_divergence(Independent(left, 1), Independent(right, 1))
    torch.testing.assert_close(ours.sum(-1), whole)


def test_the_loss_of_equal_policies_is_minus_the_mean_advantage(batch):
    contexts, z, advantages = batch
    heads = random_heads(0)
    value, metrics = loss(heads, heads, contexts, z, advantages, None, EMA)
    assert value.item() == pytest.approx(-advantages.mean().item())
    assert float(metrics.ratio) == 1.0
    assert float(metrics.approx_kl) == float(metrics.clipfrac) == 0.0
    assert float(metrics.kl) == pytest.approx(0.0, abs=1e-15)


def test_the_gradient_agrees_with_finite_differences(batch):
    contexts, z, advantages = batch
    reference = random_heads(1)
    denominator = trajectory_log_prob(reference, contexts, z).detach()
    names = [name for name, _ in random_heads(0).named_parameters()]

    def value(*tensors: torch.Tensor) -> torch.Tensor:
        heads = _Functional(random_heads(0), dict(zip(names, tensors, strict=True)))
        return loss(heads, reference, contexts, z, advantages, denominator, EMA)[0]

    parameters = [p.detach().clone().requires_grad_() for p in random_heads(0).parameters()]
    assert torch.autograd.gradcheck(value, parameters, eps=1e-6, atol=1e-6)


class _Functional:
    """A sampler whose parameters are handed in, for gradcheck."""

    def __init__(self, heads: GaussianThoughtSampler, tensors: dict[str, torch.Tensor]) -> None:
        self._heads = heads
        self._tensors = tensors
        self.directions = heads.directions

    def __call__(self, contexts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.func.functional_call(self._heads, self._tensors, (contexts,))

    def log_prob(self, contexts: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return GaussianThoughtSampler.log_prob(self, contexts, z)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ratio", "advantage", "value", "gradient", "clipfrac"),
    [
        (1.1, 2.0, -2.2, -2.2, 0.0),  # inside: the plain surrogate
        (1.5, 2.0, -2.4, 0.0, 1.0),  # already likelier, and good: nothing more to gain
        (0.5, 2.0, -1.0, -1.0, 1.0),  # good but become unlikely: free to come back
        (0.5, -2.0, 1.6, 0.0, 1.0),  # already unlikelier, and bad: nothing more to gain
        (1.5, -2.0, 3.0, 3.0, 1.0),  # bad but become likelier: free to come back
    ],
)
def test_ppo_clips_where_there_is_nothing_more_to_gain(ratio, advantage, value, gradient, clipfrac):
    assert clipped(math.log(ratio), advantage, PPO) == pytest.approx((value, gradient, clipfrac))


@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_the_wide_clip_stops_at_a_log_ratio_of_20(advantage):
    wide = replace(EMA, beta=0.0)
    inside = clipped(3.0, advantage, wide)
    assert inside == pytest.approx((-advantage * math.exp(3), -advantage * math.exp(3), 0.0))
    assert clipped(25.0, advantage, wide) == pytest.approx((-advantage * math.exp(20), 0.0, 1.0))
    assert clipped(-25.0, advantage, wide) == pytest.approx((-advantage * math.exp(-20), 0.0, 1.0))


def test_diagnostics_carry_hand_worked_numbers():
    heads, empty = Fixed([math.log(2.0), 0.0]), torch.zeros(2, 1, 1)
    zeros = torch.zeros(2, dtype=torch.float64)
    reference = GaussianThoughtSampler(1, log_std_bias=1.0)
    _, metrics = loss(heads, reference, empty, empty, zeros, zeros, PPO)
    assert float(metrics.ratio) == pytest.approx(1.5)
    assert float(metrics.approx_kl) == pytest.approx((1.0 - math.log(2.0)) / 2)
    assert float(metrics.entropy) == pytest.approx(0.5 * math.log(2 * math.pi * math.e))
    assert float(metrics.kl) == pytest.approx(1.0 + 0.5 * (math.exp(-2.0) - 1.0))
    assert metrics.sigma.tolist() == [1.0]
    assert metrics.snr.tolist() == [0.0]


def test_the_rate_warms_up_and_then_decays():
    config = replace(SamplerConfig(), lr=0.1, warmup=4)
    assert [learning_rate(s, 100, config) for s in (0, 1, 3, 50)] == pytest.approx(
        [0.025, 0.05, 0.1, 0.1]
    )
    cosine = replace(config, decay="cosine")
    assert learning_rate(50, 100, cosine) == pytest.approx(0.05)
    assert learning_rate(99, 100, cosine) < 1e-4
