"""The scales of gts@auto: read, chosen on an evaluation, stored in the card, used by the budget."""

from pathlib import Path

import pytest
import torch

from latent.errors import InputError, SpecError
from latent.folders import read_sampler_card
from latent.reasoner import Reasoner
from latent.samplers import LearnedSampler
from latent.specs import SamplerSpec
from latent.store import load_reasoner
from service.models import Catalog
from tests.reasoners import make_counting_reasoner
from tests.service.server import save_with_sampler
from tests.trainer.evaluation.evaluations import Simulated, write_run
from trainer.evaluation.scales import best_scales, main
from trainer.evaluation.summary import read_run

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


def test_auto_takes_the_scale_of_the_largest_budget_up_to_the_one_asked_for() -> None:
    auto, scales = SamplerSpec.parse("gts:a@auto"), {2: 0.25, 8: 0.5, 32: 1.0}
    chosen = {budget: str(auto.at_budget(budget, scales)) for budget in (1, 2, 7, 8, 31, 32, 99)}
    assert chosen == {
        1: "gts:a@0.25",
        2: "gts:a@0.25",
        7: "gts:a@0.25",
        8: "gts:a@0.5",
        31: "gts:a@0.5",
        32: "gts:a",
        99: "gts:a",
    }
    with pytest.raises(SpecError, match="its card has none"):
        auto.at_budget(4, {})


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


def test_scales_are_chosen_stored_and_used(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    card = read_sampler_card(folder / "samplers" / "default")
    run = write_run(tmp_path / "run", Simulated(samplers=("gts", "gts@0.5"), budget=16))
    summary = run / "summary.json"
    assert main([str(summary), str(folder / "samplers" / "default")]) == 2
    assert "another reasoner" in capsys.readouterr().err
    own = summary.read_text().replace(read_run(run).model.fingerprint, card.reasoner_fingerprint)
    summary.write_text(own)
    assert main([str(summary), str(folder / "samplers" / "default")]) == 0
    results = {one.spec: one.majority for one in read_run(run).sampling}
    scales = read_sampler_card(folder / "samplers" / "default").scale_by_budget
    assert list(scales) == [1, 2, 4, 8, 16]
    for budget, scale in scales.items():
        better = "gts" if scale == 1 else "gts@0.5"
        assert results[better][budget].value == max(one[budget].value for one in results.values())
    with pytest.raises(InputError, match="two or more"):
        best_scales(read_run(run), "other")

    reasoner = load_reasoner(folder)
    solved = reasoner.solve(QUESTION, budget=4, sampler="gts@auto", seed=1)
    fixed = f"gts@{scales[4]}" if scales[4] != 1 else "gts"
    assert solved.sampler == fixed
    served = Catalog([str(folder)]).get("counting")
    assert str(served.sampler_for("gts@auto", 4)) == fixed
    assert str(served.sampler_for("gts", 4)) == "gts"


def test_without_scales_auto_is_refused(folder: Path, reasoner: Reasoner) -> None:
    with pytest.raises(SpecError, match="needs scales by budget"):
        reasoner.solve(QUESTION, budget=4, sampler="gts@auto")
    with pytest.raises(SpecError, match="needs scales by budget"):
        Catalog([str(folder)]).get("counting").sampler_for("gts@auto", 4)
