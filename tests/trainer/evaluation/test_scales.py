"""The scales of gts@auto: read, chosen on drawn trajectories, stored in the card, used by index."""

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

import pytest
import torch

from latent.errors import SpecError
from latent.files import write_json
from latent.folders import read_sampler_card, sampler_digest
from latent.reasoner import Reasoner
from latent.samplers import GaussianThoughtSampler, LearnedSampler
from latent.specs import SamplerSpec
from latent.store import load_reasoner
from latent.trajectory import Trajectory
from service.models import Catalog
from tests.reasoners import make_counting_reasoner
from tests.service.server import save_with_sampler
from trainer.evaluation.scales import Drawn, Share, choose_schedule, main, measure

QUESTION = "Tom has 17 apples and buys 20 more. How many are there?"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("gts@0.5", "gts@0.5"),
        ("gts@1", "gts"),
        ("gts@1.0", "gts"),
        ("gts:accuracy@0.25", "gts:accuracy@0.25"),
        ("gts@auto", "gts@auto"),
        ("gts:./a@b/c@auto", "gts:./a@b/c@auto"),
    ],
)
def test_a_scale_is_part_of_the_spec(text: str, shown: str) -> None:
    spec = SamplerSpec.parse(text)
    assert str(spec) == shown
    assert SamplerSpec.parse(shown) == spec


@pytest.mark.parametrize("text", ["gts@11", "gts@0", "gts@1.2.3", "gts@often", "gaussian:1.0@auto"])
def test_a_scale_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(SpecError):
        SamplerSpec.parse(text)


def test_a_trajectory_has_the_scale_of_the_last_start_up_to_its_index() -> None:
    heads = GaussianThoughtSampler(4)
    auto = LearnedSampler(SamplerSpec.parse("gts@auto"), heads, {8: 1.0, 0: 0.25, 2: 0.5})
    assert auto.noise_scales((-1, 0, 1, 2, 7, 8, 99)) == [0.25, 0.25, 0.25, 0.5, 0.5, 1.0, 1.0]
    assert LearnedSampler(SamplerSpec.parse("gts"), heads, {0: 0.5}).noise_scales((0, 1)) is None
    with pytest.raises(SpecError, match="needs scales in its card"):
        LearnedSampler(SamplerSpec.parse("gts@auto"), heads)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_with_sampler(make_counting_reasoner(), tmp_path / "counting")


@pytest.fixture
def reasoner(folder: Path) -> Reasoner:
    return load_reasoner(folder)


def test_the_scale_multiplies_sigma_and_leaves_the_mean(reasoner: Reasoner) -> None:
    plain, half = (reasoner.sampler(text) for text in ("gts", "gts@0.5"))
    assert isinstance(plain, LearnedSampler)
    assert isinstance(half, LearnedSampler)
    assert half.heads is plain.heads  # loaded once
    context, epsilon = torch.randn(3, reasoner.width), torch.randn(3, reasoner.width)
    middle = plain.heads(context)[0]
    torch.testing.assert_close(
        half.perturb(context, epsilon) - middle, (plain.perturb(context, epsilon) - middle) / 2
    )


def trajectory(index: int, answer: int) -> Trajectory:
    return Trajectory(index, str(answer), Decimal(answer), -0.1, (), (), 0)


def question(truth: int, by_scale: dict[float, Sequence[int]]) -> Drawn:
    return Drawn(
        Decimal(truth),
        {s: [trajectory(n, a) for n, a in enumerate(row)] for s, row in by_scale.items()},
    )


def test_little_noise_comes_first_where_it_votes_better_and_more_where_it_finds_more() -> None:
    drawn = [
        # Little noise is right at once; more of it spoils the first two.
        question(7, {0.5: (7, 7, 7, 7), 1.0: (1, 2, 7, 7)}),
        question(5, {0.5: (5, 5, 5, 5), 1.0: (3, 3, 5, 5)}),
        # Only much noise ever finds this one.
        question(9, {0.5: (1, 1, 1, 1), 1.0: (1, 1, 9, 9)}),
    ]
    assert choose_schedule(drawn, starts=(0, 2), lanes=4) == {0: 0.5, 2: 1.0}
    assert measure(drawn, {0: 0.5, 2: 1.0}, 4) == Share(2 / 3, 1.0)
    assert measure(drawn, {0: 1.0}, 2) == Share(0.0, 0.0)
    always = [question(7, {0.5: (7,) * 4, 1.0: (7,) * 4})]
    assert choose_schedule(always, starts=(0, 2), lanes=4) == {0: 1.0}  # equal: the larger


def test_scales_are_chosen_stored_and_used(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "questions.jsonl"
    data.write_text('{"question": "Tom has 17 apples. How many?", "answer": "17"}\n' * 2)
    arguments = ["--model", str(folder), "--data", str(data), "--scales"]
    assert main([*arguments, "1"]) == 2
    assert "two or more numbers" in capsys.readouterr().err
    assert main([*arguments, "1,0.5", "--sampler", "gaussian:1.0"]) == 2
    assert "not a learned sampler" in capsys.readouterr().err
    assert main([*arguments, "1,0.5"]) == 0
    assert "2 questions; majority@N / pass@N in %" in capsys.readouterr().out
    own = folder / "samplers" / "default"
    assert 0 in read_sampler_card(own).schedule

    card = read_sampler_card(own)
    write_json(own / "sampler.json", {"format": 1, **vars(card), "scales": {"0": 0.5, "2": 1.0}})
    reasoner = load_reasoner(folder)
    auto, half, plain = (
        reasoner.solve(QUESTION, budget=4, sampler=spec, seed=1).trajectories
        for spec in ("gts@auto", "gts@0.5", "gts")
    )
    assert [each.logprob for each in auto[:2]] == [each.logprob for each in half[:2]]
    assert [each.logprob for each in auto[2:]] == [each.logprob for each in plain[2:]]
    assert auto[0].logprob != plain[0].logprob
    assert str(Catalog([str(folder)]).get("counting").check_sampler("gts@auto")) == "gts@auto"


def test_gts_auto_is_a_prefix_of_larger_budgets_too(folder: Path) -> None:
    own = folder / "samplers" / "default"
    card = read_sampler_card(own)
    write_json(own / "sampler.json", {"format": 1, **vars(card), "scales": {"0": 0.5, "4": 1.0}})
    reasoner = load_reasoner(folder)
    few, many = (
        reasoner.solve(QUESTION, budget=budget, sampler="gts@auto", seed=3).trajectories
        for budget in (6, 20)
    )
    assert [(one.text, one.logprob) for one in few] == [(o.text, o.logprob) for o in many[:6]]


def test_other_scales_make_a_calibration_of_auto_unfit(folder: Path) -> None:
    own = folder / "samplers" / "default"
    before = [sampler_digest(own, is_auto=is_auto) for is_auto in (False, True)]
    card = read_sampler_card(own)
    write_json(own / "sampler.json", {"format": 1, **vars(card), "scales": {"0": 0.25}})
    after = [sampler_digest(own, is_auto=is_auto) for is_auto in (False, True)]
    assert before[0] == after[0]
    assert before[1] != after[1]


def test_without_scales_auto_is_refused(folder: Path, reasoner: Reasoner) -> None:
    with pytest.raises(SpecError, match="needs scales in its card"):
        reasoner.solve(QUESTION, budget=4, sampler="gts@auto")
    with pytest.raises(SpecError, match="needs scales in its card"):
        Catalog([str(folder)]).get("counting").check_sampler("gts@auto")
