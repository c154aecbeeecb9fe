"""The measures of a summary and their statistics, from small records worked out by hand."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from trainer.evaluation.measures import summarise
from trainer.evaluation.records import Record
from trainer.evaluation.statistics import Bin, interval, intervals, reliability, wilson_interval

PLAIN = Record(
    sampler="gaussian:1.0",
    index=0,
    truth="1",
    operations=2,
    deterministic="1",
    deterministic_correct=True,
    correct=[],
    unique={"1": 1, "2": 2, "4": 3},
    votes={"majority": {"1": [0, 1.0, 0.5], "2": [0, 0.5, 0.5], "4": [0, 0.5, 0.5]}},
    gain=None,
    gain_whole=None,
    gain_share=None,
    js=0.1,
    snr=None,
    sigma=None,
    tokens=10,
    prompt_tokens=3,
    trajectories=4,
    seconds=0.25,
)
ALONE = replace(
    PLAIN,
    sampler="deterministic",
    correct=[0],
    unique={"1": 1},
    votes={"majority": {"1": [1, 1.0, 0.5]}},
    js=None,
    trajectories=1,
)


def _votes(is_right: int, share: float) -> dict[str, dict[str, list[float]]]:
    return {"majority": {str(n): [is_right, share, 0.5] for n in (1, 2, 4)}}


GAUSSIAN = [
    replace(PLAIN, index=0, correct=[1], gain=0.2, votes=_votes(0, 0.55)),
    replace(PLAIN, index=1, correct=[0, 1, 2, 3], gain=0.8, js=0.3, votes=_votes(1, 0.9)),
    replace(PLAIN, index=2, operations=5, deterministic_correct=False, votes=_votes(1, 1.0)),
]
GTS = [
    replace(
        record,
        sampler="gts",
        correct=correct,
        gain=gain,
        snr=[float(record.index), 1.0],
        sigma=[0.5, 0.5],
        votes=_votes(1, 0.7),
    )
    for record, correct, gain in zip(GAUSSIAN, ([1, 3], [0, 2], [3]), (1.2, 0.8, 3.0), strict=True)
]
DETERMINISTIC = [
    replace(ALONE, index=0),
    replace(ALONE, index=1),
    replace(ALONE, index=2, operations=5, deterministic_correct=False, correct=[]),
]


def _summary(**changes: Any) -> dict[str, Any]:
    records = {"deterministic": DETERMINISTIC, "gaussian:1.0": GAUSSIAN, "gts": GTS}
    values = {"config": {"a": 1}, "model": {"name": "m"}, "data": {"rows": 3}, "seed": 0}
    return summarise(records, **{**values, **changes})


def test_pass_at_n_is_unbiased_and_first_n_is_plain() -> None:
    found = _summary()["samplers"]["gaussian:1.0"]
    # 1, 4 and 0 of 4 are right: pass@2 is 1 − C(3,2)/C(4,2) = ½, 1, 0.
    values = {n: one["value"] for n, one in found["pass_at"].items()}
    assert values == pytest.approx({"1": (0.25 + 1) / 3, "2": 0.5, "4": 2 / 3}, abs=1e-6)
    first = {n: one["value"] for n, one in found["first_n"].items()}
    assert first == pytest.approx({"1": 1 / 3, "2": 2 / 3, "4": 2 / 3}, abs=1e-6)
    assert found["unique"]["4"] == {"value": 3.0, "low": 3.0, "high": 3.0}
    assert found["votes"]["majority"]["4"]["value"] == pytest.approx(2 / 3, abs=1e-6)
    assert (found["tokens"], found["trajectories"], found["seconds"]) == (30, 12, 0.75)


def test_of_trajectories_with_different_scales_pass_at_n_counts_the_first_ones() -> None:
    records = {"gts@auto": [replace(record, sampler="gts@auto") for record in GAUSSIAN]}
    found = summarise(records, config={}, model={}, data={}, seed=0)["samplers"]["gts@auto"]
    assert found["pass_at"] == found["first_n"]
    assert found["pass_at"]["1"]["value"] == pytest.approx(1 / 3, abs=1e-6)


def test_gain_is_over_the_questions_that_have_one() -> None:
    found = _summary()["samplers"]
    assert found["gaussian:1.0"]["gain"]["value"] == pytest.approx(0.5)
    assert found["gaussian:1.0"]["gain_rate"]["value"] == 0.5
    assert found["gaussian:1.0"]["js"]["value"] == pytest.approx(0.5 / 3, abs=1e-6)
    assert found["gaussian:1.0"]["regime"] == "over-exploration"
    assert found["deterministic"]["gain"] is None
    assert found["deterministic"]["regime"] is None


def test_snr_is_spread_over_questions_for_each_thought() -> None:
    first, second = _summary()["samplers"]["gts"]["snr"]
    assert first == {"mean": 1.0, "p05": 0.1, "p25": 0.5, "p50": 1.0, "p75": 1.5, "p95": 1.9}
    assert set(second.values()) == {1.0}
    assert _summary()["samplers"]["gaussian:1.0"]["snr"] is None


def test_the_deterministic_accuracy_is_given_by_operations() -> None:
    found = _summary()["deterministic"]
    assert found["accuracy"]["value"] == pytest.approx(2 / 3, abs=1e-6)
    values = {count: one["value"] for count, one in found["by_operations"].items()}
    assert values == {"2": 1.0, "5": 0.0}


def test_samplers_are_compared_with_the_learned_one_by_question() -> None:
    paired = {pair["measure"]: pair for pair in _summary()["paired"]}
    assert set(paired) == {"pass@4", "majority@4", "gain"}
    assert {(pair["sampler"], pair["against"]) for pair in paired.values()} == {
        ("gaussian:1.0", "gts")
    }
    assert paired["pass@4"]["difference"] == pytest.approx(1 / 3, abs=1e-6)
    assert paired["majority@4"]["difference"] == pytest.approx(1 / 3, abs=1e-6)
    assert paired["gain"]["difference"] == pytest.approx(0.5)  # of two questions: 1.0 and 0.0
    assert (paired["gain"]["low"], paired["gain"]["high"]) == (0.0, 1.0)


def test_two_learned_samplers_are_compared_both_ways() -> None:
    other = [replace(record, sampler="gts:./b") for record in GTS]
    summary = summarise({"gts": GTS, "gts:./b": other}, config={}, model={}, data={}, seed=0)
    pairs = {(pair["sampler"], pair["against"]) for pair in summary["paired"]}
    assert pairs == {("gts", "gts:./b"), ("gts:./b", "gts")}
    assert {pair["difference"] for pair in summary["paired"]} == {0.0}


def test_the_mean_over_seeds_of_one_training_is_paired_by_question() -> None:
    other = [
        replace(record, sampler="gts:b", correct=correct, gain=gain)
        for record, correct, gain in zip(GTS, ([], [1], []), (0.2, 1.0, None), strict=True)
    ]
    alone = [replace(record, sampler="gts:c") for record in GTS]
    records = {"gaussian:1.0": GAUSSIAN, "gts": GTS, "gts:b": other, "gts:c": alone}
    summary = summarise(
        records, config={}, model={}, data={}, seed=0, seed_groups=[("gts", "gts:b")]
    )
    (seeds,) = summary["seeds"]
    assert seeds["samplers"] == ["gts", "gts:b"]
    # pass@4 of the three questions is 1, 1, 1 and 0, 1, 0; gain 1.2, 0.8, 3.0 and 0.2, 1.0, none.
    assert seeds["measures"]["pass@4"]["value"] == pytest.approx((0.5 + 1 + 0.5) / 3, abs=1e-6)
    assert seeds["measures"]["gain"]["value"] == pytest.approx((0.7 + 0.9) / 2)
    differences = {(p["sampler"], p["measure"]): p["difference"] for p in seeds["paired"]}
    assert {sampler for sampler, _ in differences} == {"gaussian:1.0", "gts:c"}
    assert differences["gaussian:1.0", "pass@4"] == pytest.approx(0.0)  # −½, 0 and ½
    assert differences["gts:c", "pass@4"] == pytest.approx(-1 / 3, abs=1e-6)
    assert differences["gaussian:1.0", "gain"] == pytest.approx((0.5 + 0.1) / 2)


def test_two_trainings_are_compared_mean_to_mean() -> None:
    records = {
        spec: [replace(record, sampler=spec, correct=right) for record in GTS]
        for spec, right in (("gts", [0]), ("gts:b", [0]), ("gts:c", []), ("gts:d", [0]))
    }
    groups = [("gts", "gts:b"), ("gts:c", "gts:d")]
    summary = summarise(records, config={}, model={}, data={}, seed=0, seed_groups=groups)
    first, second = summary["seeds"]
    found = {pair["measure"]: pair for pair in first["paired"]}
    assert (found["pass@4"]["sampler"], found["pass@4"]["difference"]) == ("gts:c", 0.5)
    assert {pair["sampler"] for pair in second["paired"]} == {"gts"}


def test_the_seed_alone_decides_the_intervals() -> None:
    assert _summary() == _summary()
    rng = np.random.default_rng(0)
    values = rng.normal(size=200)
    assert interval(values, 1) == interval(values, 1)
    assert interval(values, 1) != interval(values, 2)


def test_an_interval_is_that_of_the_resampled_mean() -> None:
    values = (np.arange(400) < 100).astype(float)  # a quarter: σ of the mean is √(¼·¾/400) ≈ 0.0217
    found = interval(values, 0)
    assert found is not None
    assert found.value == 0.25
    assert found.low == pytest.approx(0.25 - 1.96 * 0.0217, abs=0.004)
    assert found.high == pytest.approx(0.25 + 1.96 * 0.0217, abs=0.004)


def test_columns_share_their_resamples() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(50, 2))
    together = intervals(np.column_stack([values, values[:, 0] + 1.0]), 3)
    assert together[0] == interval(values[:, 0], 3)
    assert together[2].low == pytest.approx(together[0].low + 1.0, abs=2e-6)


def test_blocks_of_resamples_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).normal(size=(30, 2))
    whole = intervals(values, 0)
    monkeypatch.setattr("trainer.evaluation.statistics._BLOCK", 100)
    assert intervals(values, 0) == whole


def test_reliability_bins_shares_and_weighs_gaps_by_count() -> None:
    shares = np.array([0.7, 0.62, 0.05, 1.0])
    found = reliability(shares, np.array([1.0, 0.0, 0.0, 1.0]))
    assert [one.count for one in found.bins] == [1, 0, 0, 0, 0, 0, 2, 0, 0, 1]
    assert found.bins[6] == Bin(0.6, 0.7, 2, 0.66, 0.5)
    assert found.bins[1] == Bin(0.1, 0.2, 0, None, None)
    assert found.ece == pytest.approx((2 * 0.16 + 0.05 + 0.0) / 4)


def test_adaptive_budgets_end_at_the_first_checkpoint_that_suffices() -> None:
    # Budgets 1 to 8, so the only checkpoint is 4; the second question is sure there, and wrong.
    def served(at_four: float, at_eight: float) -> dict[str, list[float]]:
        return {"1": [0, 0], "2": [0, 0], "4": [at_four, 0.97], "8": [at_eight, 0.99]}

    def votes(at_four: int) -> dict[str, dict[str, list[float]]]:
        right = {"1": 1, "2": 1, "4": at_four, "8": 1}
        return {"majority": {n: [is_right, 0.5, 0.5] for n, is_right in right.items()}}

    unique = {"1": 1, "2": 1, "4": 1, "8": 1}
    rows = [
        replace(PLAIN, index=n, trajectories=8, unique=unique, votes=votes(right), served=sure)
        for n, (right, sure) in enumerate([(1, served(0.5, 0.85)), (0, served(0.9, 0.95))])
    ]
    found = summarise({"gts": rows}, config={}, model={}, data={}, seed=0)["samplers"]["gts"]
    by_stop = {
        (one["kind"], one["level"]): (one["trajectories"]["value"], one["accuracy"]["value"])
        for one in found["stops"]
    }
    assert by_stop["confidence", 0.9] == (6.0, 0.5)
    assert by_stop["confidence", 0.95] == (8.0, 1.0)
    assert by_stop["certainty", 0.95] == (4.0, 0.5)
    served_bins = found["calibration"]["served"]["bins"]
    assert [(one["count"], one["share"]) for one in served_bins[8:]] == [(1, 0.85), (1, 0.95)]
    assert _summary()["samplers"]["gts"]["stops"] == []


def test_the_wilson_interval_stays_inside_and_shrinks() -> None:
    assert wilson_interval(0.0, 10) == pytest.approx((0.0, 0.2775), abs=1e-4)
    assert wilson_interval(0.5, 100) == pytest.approx((0.4038, 0.5962), abs=1e-4)
