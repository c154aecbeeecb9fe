import math

import pytest
import torch
from torch.distributions import Normal

from latent.folders import LOG_STD_FLOOR
from latent.samplers import GaussianThoughtSampler, Sampler
from latent.specs import SamplerSpec
from tests.samplers import make_sampler


@pytest.mark.parametrize(("width", "count"), [(768, 2_362_368), (2048, 16_785_408)])
def test_gts_has_the_papers_parameter_count(width: int, count: int) -> None:
    assert sum(p.numel() for p in GaussianThoughtSampler(width).parameters()) == count


def test_an_untrained_gts_is_the_standard_gaussian() -> None:
    context, epsilon = torch.randn(5, 16), torch.randn(5, 16)
    assert torch.equal(GaussianThoughtSampler(16).sample(context, epsilon), epsilon)
    scaled = GaussianThoughtSampler(16, log_std_bias=math.log(0.5))
    torch.testing.assert_close(scaled.sample(context, epsilon), 0.5 * epsilon)


def test_log_prob_is_the_mean_over_dimensions_of_a_normal_density() -> None:
    heads = make_sampler("gts").heads  # type: ignore[attr-defined]
    context, z = torch.randn(3, 4, 32).double(), torch.randn(3, 4, 32).double()
    mean, log_std = heads(context)
    expected = Normal(mean, log_std.exp()).log_prob(z).mean(-1)
    torch.testing.assert_close(heads.log_prob(context, z), expected)


def test_what_is_sampled_is_what_is_scored() -> None:
    heads = make_sampler("gts").heads  # type: ignore[attr-defined]
    context, epsilon = torch.randn(6, 32).double(), torch.randn(6, 32).double()
    mean, log_std = heads(context)
    z = heads.sample(context, epsilon)
    expected = (-0.5 * epsilon.square() - log_std - 0.5 * math.log(2 * math.pi)).mean(-1)
    torch.testing.assert_close(heads.log_prob(context, z), expected)
    torch.testing.assert_close((z - mean) / log_std.exp(), epsilon)


def test_the_log_standard_deviation_is_clamped_from_below() -> None:
    heads = GaussianThoughtSampler(8, log_std_bias=-5.0)
    assert float(heads(torch.randn(2, 8))[1].detach().min()) == LOG_STD_FLOOR
    low = GaussianThoughtSampler(8, log_std_bias=-5.0, log_std_floor=-4.0)
    assert float(low(torch.randn(2, 8))[1].detach().min()) == -4.0


def _along_two_directions() -> GaussianThoughtSampler:
    torch.manual_seed(3)
    heads = GaussianThoughtSampler(8, directions=2).double()
    for head in (heads.mean, heads.log_std):
        torch.nn.init.normal_(head[-1].weight, std=0.1)
    assert heads.directions is not None
    heads.directions.copy_(torch.tensor([[0, 3, 0, 0, 0, 0, 0, 0], [0.6, 0, 0.8, 0, 0, 0, 0, 0]]))
    return heads


def test_with_directions_only_they_are_perturbed_in_units_of_their_length() -> None:
    heads = _along_two_directions()
    context, epsilon = torch.randn(5, 8).double(), torch.randn(5, 8).double()
    mean, log_std = heads(context)
    assert mean.shape == log_std.shape == (5, 2)
    u = mean + log_std.exp() * epsilon[:, :2]
    z = heads.sample(context, epsilon)
    torch.testing.assert_close(z[:, 1], 3 * u[:, 0])
    torch.testing.assert_close(z[:, [0, 2]], u[:, 1:] * torch.tensor([0.6, 0.8]).double())
    assert not z[:, 3:].any()


def test_with_directions_the_density_is_that_of_the_coordinates() -> None:
    heads = _along_two_directions()
    context, epsilon = torch.randn(6, 8).double(), torch.randn(6, 8).double()
    _, log_std = heads(context)
    drawn = epsilon[:, :2]
    expected = (-0.5 * drawn.square() - log_std - 0.5 * math.log(2 * math.pi)).mean(-1)
    torch.testing.assert_close(heads.log_prob(context, heads.sample(context, epsilon)), expected)


def test_gaussian_scales_the_noise_and_nothing_else() -> None:
    context, epsilon = torch.randn(2, 8), torch.randn(2, 8)
    sampler = Sampler(SamplerSpec.parse("gaussian:0.25"))
    assert torch.equal(sampler.perturb(context, epsilon), 0.25 * epsilon)


@pytest.mark.parametrize("text", ["deterministic", "dropout:0.3", "token:0.7"])
def test_samplers_that_act_elsewhere_add_nothing(text: str) -> None:
    sampler = Sampler(SamplerSpec.parse(text))
    assert not sampler.is_additive
    assert not sampler.perturb(torch.randn(2, 8), torch.randn(2, 8)).any()
    assert sampler.dropout == (0.3 if text.startswith("dropout") else 0.0)
    assert sampler.temperature == (0.7 if text.startswith("token") else 0.0)
