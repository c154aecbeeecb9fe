import pytest
import torch

from latent.errors import InputError
from latent.noise import LaneNoise, Site, derive_seed
from latent.trajectory import MAX_SEED


def test_a_lane_draws_the_same_whoever_is_beside_it() -> None:
    together = LaneNoise((5, 5, 9), (0, 3, 3))
    alone = LaneNoise((5,), (3,))
    assert torch.equal(together.normal(4, 30)[:, 1], alone.normal(4, 30)[:, 0])
    drawn = together.uniform(2, Site.ATTENTION, 21, layer=1, rows=3)
    assert torch.equal(drawn[1], alone.uniform(2, Site.ATTENTION, 21, layer=1, rows=3)[0])
    assert torch.equal(together.select(torch.tensor([1])).normal(4, 30), alone.normal(4, 30))


def test_more_columns_or_steps_do_not_shift_the_first_ones() -> None:
    noise = LaneNoise((1,), (7,))
    assert torch.equal(noise.normal(6, 64)[:2, :, :10], noise.normal(2, 10))
    wide = noise.uniform(0, Site.EMBEDDING, 64)
    assert torch.equal(wide[..., :5], noise.uniform(0, Site.EMBEDDING, 5))


def test_every_part_of_the_address_matters() -> None:
    def draw(
        seed: int = 1, index: int = 0, step: int = 0, site: Site = Site.TOKEN, layer: int = 0
    ) -> float:
        return float(LaneNoise((seed,), (index,)).uniform(step, site, 1, layer=layer)[0, 0, 0])

    variants = [
        draw(),
        draw(seed=2),
        draw(seed=1 + 2**32),
        draw(index=1),
        draw(step=1),
        draw(site=Site.PROJECTION),
        draw(layer=1),
    ]
    assert len(set(variants)) == len(variants)
    rows = LaneNoise((1,), (0,)).uniform(0, Site.ATTENTION, 8, rows=4)
    assert len({tuple(row.tolist()) for row in rows[0]}) == 4


def test_normals_have_the_moments_of_a_standard_normal() -> None:
    drawn = LaneNoise((3,) * 64, tuple(range(64))).normal(6, 256).double()
    count = drawn.numel()
    assert abs(float(drawn.mean())) < 4 / count**0.5
    assert float(drawn.var()) == pytest.approx(1.0, abs=4 * (2 / count) ** 0.5)
    assert float((drawn.abs() > 1.96).double().mean()) == pytest.approx(0.05, abs=0.003)
    lag = (drawn[..., :-1] * drawn[..., 1:]).mean()
    assert abs(float(lag)) < 4 / count**0.5


@pytest.mark.parametrize("seed", [-1, MAX_SEED + 1])
def test_a_seed_out_of_range_is_refused_by_name(seed: int) -> None:
    with pytest.raises(InputError, match="seed must be between 0 and"):
        LaneNoise((seed,), (0,))


def test_derived_seeds_do_not_collide_and_never_change() -> None:
    seeds = {derive_seed(run, part, q) for run in range(5) for part in range(5) for q in range(50)}
    assert len(seeds) == 1250
    assert derive_seed(1, 23) != derive_seed(12, 3)
    assert derive_seed(1, "2") != derive_seed(1, 2)
    assert derive_seed(0, 0, "q-1") == 2209688723488082157 <= MAX_SEED
