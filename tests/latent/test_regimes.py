"""Regimes: the rule, thresholds from fixed noise, and what the labels say of committed results."""

import json
from pathlib import Path

import pytest

from latent.errors import FormatError, InputError, MismatchError
from latent.regimes import (
    FILE_NAME,
    FixedNoise,
    Thresholds,
    load_thresholds,
    measure_thresholds,
    regime,
    write_thresholds,
)
from latent.zoo import embedded_models
from trainer.evaluation.summary import read_summary
from trainer.evaluation.thresholds import main, thresholds_of

RESULTS = Path(__file__).parents[2] / "docs" / "results"
PUBLISHED = {  # SG and JS of the paper's table, without intervals
    "COCONUT": {
        "dropout:0.1": (1.09, 0.05),
        "dropout:0.5": (-0.87, 0.28),
        "gaussian": (0.34, 0.20),
    },
    "CODI": {"dropout:0.1": (0.53, 0.01), "dropout:0.5": (0.47, 0.06), "gaussian": (0.11, 0.15)},
}
GTS = {"COCONUT": (1.84, 0.11), "CODI": (1.15, 0.10)}


def noise(gain: float, shift: float, half: float = 0.0) -> FixedNoise:
    return FixedNoise(gain, gain - half, gain + half, shift)


@pytest.mark.parametrize("backbone", PUBLISHED)
def test_the_rule_gives_the_papers_labels_from_the_papers_numbers(backbone: str) -> None:
    fixed = PUBLISHED[backbone]
    limits = measure_thresholds([noise(*one) for one in fixed.values()])
    labels = {spec: regime(*one, limits) for spec, one in fixed.items()}
    assert labels == {
        "dropout:0.1": "under-exploration",
        "dropout:0.5": "over-exploration",
        "gaussian": "over-exploration",
    }
    assert regime(*GTS[backbone], limits) == "useful"


def test_thresholds_are_the_best_noises_gain_and_the_largest_shift_that_keeps_it() -> None:
    rising, best, level, falling = (
        noise(0.2, 0.01),
        noise(0.6, 0.03, 0.1),
        noise(0.55, 0.05),
        noise(0, 0.2),
    )
    assert measure_thresholds([rising, best, level, falling]) == Thresholds(0.7, 0.05)
    with pytest.raises(InputError, match="two scales"):
        measure_thresholds([best])


def test_the_regime_is_unknown_without_the_gain() -> None:
    assert regime(None, 0.2) is None


@pytest.mark.parametrize("name", ["coconut-tiny", "codi-tiny"])
def test_an_embedded_reasoner_has_the_thresholds_of_its_validation(name: str) -> None:
    run = read_summary(RESULTS / "validation" / f"{name}.json")
    assert load_thresholds(embedded_models()[name], run.model.fingerprint) == thresholds_of(run)


@pytest.mark.parametrize("name", ["coconut-tiny", "codi-tiny"])
def test_the_label_separates_samplers_that_help_on_other_questions(name: str) -> None:
    """Thresholds are of validation, figures of the test questions: pass@32 and the majority of 32."""
    limits = thresholds_of(read_summary(RESULTS / "validation" / f"{name}.json"))
    run = read_summary(RESULTS / f"{name}.json")
    for values in (
        {one.spec: one.pass_at[32].value for one in run.sampling},
        {one.spec: one.majority[32].value for one in run.sampling},
    ):
        useful, others = [], []
        for one in run.sampling:
            assert one.gain is not None
            assert one.js is not None
            label = regime(one.gain.value, one.js.value, limits)
            assert label == one.regime, "the committed label"
            (useful if label == "useful" else others).append(values[one.spec])
        assert min(useful) > max(others)


def test_a_file_is_written_read_and_refused(tmp_path: Path) -> None:
    assert load_thresholds(tmp_path, "abc") == Thresholds()
    write_thresholds(tmp_path / FILE_NAME, Thresholds(0.7, 0.02), "abc", "validation")
    assert load_thresholds(tmp_path, "abc") == Thresholds(0.7, 0.02)
    with pytest.raises(MismatchError, match="another reasoner"):
        load_thresholds(tmp_path, "other")
    data = json.loads((tmp_path / FILE_NAME).read_text())
    for field, value in (("gain", "high"), ("shift", None), ("format", 2)):
        (tmp_path / FILE_NAME).write_text(json.dumps({**data, field: value}))
        with pytest.raises(FormatError, match=field):
            load_thresholds(tmp_path, "abc")


def test_the_command_refuses_a_summary_of_another_reasoner(
    capsys: pytest.CaptureFixture[str],
) -> None:
    summary = RESULTS / "validation" / "coconut-tiny.json"
    assert main([str(summary), str(embedded_models()["codi-tiny"])]) == 2
    assert "of another reasoner" in capsys.readouterr().err
