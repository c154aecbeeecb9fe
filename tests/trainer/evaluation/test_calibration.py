"""Calibration: properties of every fit, measures worked out by hand, and whole runs."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from latent.calibration import Calibration, Evidence, evidence_of
from latent.calibration_file import (
    FILE_NAME,
    load_calibrations,
    read_calibrations,
    write_calibrations,
)
from latent.errors import GtsError, InputError
from latent.folders import fingerprint, weights_digest
from latent.solve import solve
from latent.specs import SamplerSpec
from latent.store import load_reasoner, load_sampler
from latent.zoo import resolve_model
from tests.calibrations import COEFFICIENTS, make_calibration
from tests.reasoners import make_counting_reasoner
from tests.service.server import save_with_sampler
from tests.trajectories import trajectory
from tests.verifiers import add_verifier
from trainer.evaluation.calibration import (
    CalibrationRun,
    calibrate,
    judged_votes,
    parse_budgets,
    parse_samplers,
)
from trainer.evaluation.calibration_fit import (
    Judged,
    fit,
    out_of_fold,
    question_weights,
    transfers,
)
from trainer.evaluation.statistics import expected_calibration_error

BUDGETS = (1, 16)
QUESTIONS = 60


def draw(rng: np.random.Generator, questions: int, truth: Calibration | None) -> list[Judged]:
    """Votes at budgets 1 to 16, right with the probability of `truth`, or with 0.5 without it."""
    judged = []
    for question in range(questions):
        for budget in (1, 2, 4, 8, 16):
            share = float(rng.integers(1, budget + 1) / budget)
            confidence = float(rng.beta(2, 1))
            is_alone = budget == 1 and question % 2 == 0
            evidence = Evidence(share, confidence, budget, is_alone, novelty=question % 3 / 2)
            chance = 0.5 if truth is None else truth.probability(evidence)
            judged.append(Judged(question, evidence, bool(rng.random() < chance)))
    return judged


def fitted(judged: Sequence[Judged]) -> Calibration:
    return make_calibration(coefficients=fit(judged, BUDGETS))


@pytest.mark.parametrize("seed", range(12))
def test_share_and_confidence_only_raise_the_probability_whatever_was_fitted(seed: int) -> None:
    rng = np.random.default_rng(seed)
    data = draw(rng, int(rng.integers(10, 60)), None)
    if seed % 2:  # a small share means right
        data = [replace(one, is_right=one.evidence.share < 0.5) for one in data]
    model = fitted(data)
    for _ in range(50):
        budget = int(rng.integers(1, 40))
        (low, high), other = sorted(rng.random(2).tolist()), float(rng.random())
        less, more = (Evidence(share, other, budget, False) for share in (low, high))
        assert model.probability(less) <= model.probability(more) + 1e-12
        less, more = (Evidence(other, confidence, budget, False) for confidence in (low, high))
        assert model.probability(less) <= model.probability(more) + 1e-12


def test_a_known_model_is_recovered() -> None:
    truth = make_calibration(coefficients=COEFFICIENTS)
    found = fitted(draw(np.random.default_rng(0), 6000, truth))
    for budget, novelty in product((1, 2, 4, 8, 16), (0.0, 0.5, 1.0)):
        possible = [share for share in (0.25, 0.5, 1.0) if share * budget >= 1]
        for share, confidence in product(possible, (0.2, 0.5, 0.9)):
            evidence = Evidence(share, confidence, budget, False, novelty)
            assert found.probability(evidence) == pytest.approx(
                truth.probability(evidence), abs=0.05
            )
    alone = Evidence(1.0, 0.5, 1, True)
    assert found.probability(alone) == pytest.approx(truth.probability(alone), abs=0.04)


def test_the_fit_is_calibrated_and_the_share_is_not() -> None:
    truth = make_calibration(coefficients=replace(COEFFICIENTS, intercept=-3.0))
    data = draw(np.random.default_rng(1), 800, truth)
    is_right = np.array([one.is_right for one in data], dtype=np.float64)
    shares, weights = np.array([one.evidence.share for one in data]), question_weights(data)
    assert expected_calibration_error(out_of_fold(data, BUDGETS), is_right, weights) < 0.03
    assert expected_calibration_error(shares, is_right, weights) > 0.2


def test_a_few_questions_that_are_all_right_do_not_give_certainty() -> None:
    data = [replace(one, is_right=True) for one in draw(np.random.default_rng(2), 10, None)]
    probability = fitted(data).probability(Evidence(1.0, 1.0, 16, False))
    assert 0.8 < probability < 0.9999


def test_every_question_counts_the_same_however_often_it_voted() -> None:
    data = draw(np.random.default_rng(3), 30, None)
    twice = [one for one in data for _ in range(2 if one.question < 10 else 1)]
    once, again = (np.array(list(vars(fit(rows, BUDGETS)).values())) for rows in (data, twice))
    assert again == pytest.approx(once, abs=1e-6)
    assert question_weights(data).sum() == pytest.approx(30)


def test_an_out_of_fold_probability_does_not_depend_on_its_own_question() -> None:
    data = draw(np.random.default_rng(4), 20, None)
    own = np.array([one.question == 7 for one in data])
    flipped = [
        replace(one, is_right=not one.is_right) if one.question == 7 else one for one in data
    ]
    before, after = out_of_fold(data, BUDGETS), out_of_fold(flipped, BUDGETS)
    assert before[own] == pytest.approx(after[own], abs=0)
    assert not np.allclose(before[~own], after[~own])


def test_the_calibration_error_is_worked_out_by_hand() -> None:
    # Gaps: 0.9 in (0.8, 0.9], 0.25 in (0.2, 0.3], and 0 in the top bin with two right answers.
    p, right = np.array([0.9, 1.0, 0.25, 1.0]), np.array([0.0, 1.0, 0.0, 1.0])
    error = expected_calibration_error(p, right, np.ones(4))
    assert error == pytest.approx((0.9 + 0.25) / 4)
    weighted = expected_calibration_error(p, right, np.array([1.0, 1.0, 2.0, 0.0]))
    assert weighted == pytest.approx((0.9 + 0.5) / 4)


def test_votes_are_judged_at_every_budget() -> None:
    answers = (5, 6, 5, 5, None)  # the deterministic one first
    voters = [trajectory(n - 1, answer) for n, answer in enumerate(answers)]
    found = list(judged_votes(3, voters, Decimal(5), (1, 2, 4), "majority"))
    assert [(one.evidence, one.is_right) for one in found] == [
        (Evidence(1.0, 0.5, 1, False), False),  # 6
        (Evidence(0.5, 0.5, 2, False), False),  # 6, 5
        (Evidence(0.5, 0.5, 4, False), True),  # 6, 5, 5, unreadable
        (Evidence(1.0, 0.5, 1, True), True),
    ]
    unread = [replace(voter, answer=None) for voter in voters]
    assert list(judged_votes(3, unread, Decimal(5), (1, 2, 4), "majority")) == []


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "counting"
    return save_with_sampler(make_counting_reasoner(), folder)


@dataclass(frozen=True)
class HeldOut:
    """Questions, for half of which the deterministic answer is the right one."""

    path: Path
    deterministic: list[Evidence]  # of the deterministic answers


@pytest.fixture(scope="module")
def held_out(folder: Path) -> HeldOut:
    reasoner = load_reasoner(folder)
    sampler = load_sampler(reasoner, SamplerSpec("deterministic"), None)
    rows: list[dict[str, str]] = []
    found: list[Evidence] = []
    for number in range(2 * QUESTIONS):
        question = f"Ann has {number} apples and buys {number + 3} more. How many are there?"
        tally = solve(reasoner, question, sampler, budget=1, seed=0).tally
        if len(rows) == QUESTIONS:
            break
        if tally.winner.answer is not None:
            truth = str(tally.winner.answer) if len(rows) % 2 else "-1"
            rows.append({"question": question, "answer": truth})
            found.append(evidence_of(tally))
    path = folder.parent / "held-out.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return HeldOut(path, found)


def test_a_fit_on_the_other_kinds_is_tried_on_each() -> None:
    evidence = Evidence(1.0, 0.9, 4, False)
    right = [Judged(n, evidence, n % 4 != 0, kind=0) for n in range(40)]
    wrong = [Judged(n, evidence, n % 4 == 0, kind=1) for n in range(40, 80)]
    to_right, to_wrong = transfers([*right, *wrong], BUDGETS)
    assert (to_right.kind, to_wrong.kind) == (0, 1)
    # The prior draws a quarter, or three quarters, a little towards a half.
    assert to_right.excess == pytest.approx(-0.5, abs=0.03)
    assert to_wrong.excess == pytest.approx(0.5, abs=0.03)
    assert to_right.ece == pytest.approx(-to_right.excess), "all of them are in one bin"
    assert transfers(right, BUDGETS) == ()


@pytest.fixture(scope="module")
def data(held_out: HeldOut) -> Path:
    return held_out.path


def run_of(data: Path | str, out: Path, samplers: str = "gts,gaussian:0.1") -> CalibrationRun:
    return CalibrationRun(parse_samplers(samplers), (str(data),), (1, 2, 4), QUESTIONS, 0, out)


def test_a_run_writes_a_file_that_fits_its_folder(
    folder: Path, held_out: HeldOut, tmp_path: Path
) -> None:
    reasoner = load_reasoner(folder)
    out = folder / FILE_NAME
    written, reports = calibrate(reasoner, folder, run_of(held_out.path, out))
    curves = {sampler: report.curve for sampler, report in reports.items()}
    assert not any(report.transfers for report in reports.values()), "there is one kind"
    assert curves["gts"].inside[0].coverage == 1.0
    assert curves["gts"].outside == ()
    assert load_calibrations(folder, fingerprint(folder)) == written
    votes = ("best", "centroid", "confidence", "majority")
    keys = [(name, vote) for name in ("gaussian:0.1", "gts") for vote in votes]
    assert [(one.sampler, one.vote) for one in written.fitted] == keys
    for one in written.fitted:
        assert (one.questions, one.data, one.budgets) == (QUESTIONS, "held-out.jsonl", (1, 4))
        assert 0 <= one.ece <= 1
        is_learned = one.sampler == "gts"
        own = weights_digest(folder / "samplers" / "default") if is_learned else None
        assert one.sampler_fingerprint == own
    # Half of the deterministic answers are right, so the mean of their probabilities is about 0.5.
    gaussian = written.find(SamplerSpec.parse("gaussian:0.1"), "majority")
    assert gaussian is not None
    probabilities = [gaussian.probability(one) for one in held_out.deterministic]
    assert np.mean(probabilities) == pytest.approx(0.5, abs=0.1)
    assert gaussian.ece < gaussian.share_ece

    other = tmp_path / "again.json"
    calibrate(reasoner, folder, run_of(held_out.path, other))
    assert other.read_bytes() == out.read_bytes(), "the same run, the same file"


def test_a_reasoner_with_a_verifier_has_its_vote_calibrated_too(
    folder: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    verified = shutil.copytree(folder, tmp_path / "verified")
    (verified / FILE_NAME).unlink(missing_ok=True)
    add_verifier(verified)
    plain, with_it = tmp_path / "plain.json", verified / FILE_NAME
    calibrate(load_reasoner(folder), folder, run_of(data, plain, "gaussian:0.1"))
    reasoner = load_reasoner(verified)
    written, _ = calibrate(reasoner, verified, run_of(data, with_it, "gaussian:0.1"))
    *others, own = written.fitted
    assert own.vote == "verifier"
    assert own.verifier_fingerprint == weights_digest(verified / "verifiers" / "default")
    assert tuple(others) == read_calibrations(plain).fitted, "the other votes are the same"
    question = json.loads(data.read_text().splitlines()[0])["question"]
    voted = solve(load_reasoner(verified), question, "gaussian:0.1", seed=0, vote="verifier")
    novelty = 0.0 if voted.familiarity is None else voted.familiarity.novelty
    assert voted.confidence_kind == "calibrated"
    assert voted.confidence == own.probability(evidence_of(voted.tally, novelty))
    # One of another verifier is named and left out.
    stale = replace(own, sampler="gaussian:3.0", verifier_fingerprint="gone")
    write_calibrations(with_it, replace(written, fitted=(stale,)))
    found, _ = calibrate(reasoner, verified, run_of(data, with_it, "gaussian:0.1"))
    assert found == written
    dropped = "drops gaussian:3.0 with vote verifier: the verifier has changed since it was"
    assert dropped in capsys.readouterr().out


def test_a_run_keeps_valid_entries_of_other_samplers_and_names_those_it_drops(
    folder: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reasoner, out = load_reasoner(folder), tmp_path / FILE_NAME
    kept = make_calibration(sampler="gaussian:3.0")
    stale = make_calibration(sampler="gts", sampler_fingerprint="gone")
    replaced = make_calibration(sampler="deterministic")
    run = run_of(data, out, "deterministic")
    empty, _ = calibrate(reasoner, folder, run)
    write_calibrations(out, replace(empty, fitted=(kept, stale, replaced)))
    found, _ = calibrate(reasoner, folder, run)
    assert kept in found.fitted
    assert {one.sampler for one in found.fitted} == {"deterministic", "gaussian:3.0"}
    assert replaced not in found.fitted
    dropped = f"{out}: drops gts with vote majority: sampler 'gts' has changed since it was"
    assert dropped in capsys.readouterr().out
    write_calibrations(out, replace(empty, reasoner_fingerprint="another", fitted=(kept,)))
    assert calibrate(reasoner, folder, run)[0] == empty
    dropped = "drops gaussian:3.0 with vote majority: it is for other weights of the reasoner"
    assert dropped in capsys.readouterr().out
    write_calibrations(out, replace(empty, reference=None, fitted=(kept,)))
    assert calibrate(reasoner, folder, run)[0] == empty
    dropped = "drops gaussian:3.0 with vote majority: it was fitted on other questions"
    assert dropped in capsys.readouterr().out


def test_the_likelihood_of_text_is_calibrated(tmp_path: Path) -> None:
    folder = resolve_model("cot-tiny")
    run = run_of("embedded:validation", tmp_path / FILE_NAME, "token:1.0")
    found, _ = calibrate(load_reasoner(folder), folder, run)
    votes = ["best", "checked", "confidence", "likelihood", "majority"]
    assert [one.vote for one in found.fitted] == votes
    fitted = found.find(SamplerSpec.parse("token:1.0"), "likelihood")
    assert fitted is not None
    assert fitted.coefficients.likelihood > 0
    likely, unlikely = (Evidence(0.5, 0.5, 4, False, likelihood=each) for each in (0.9, 0.1))
    assert fitted.probability(likely) > fitted.probability(unlikely)


def test_questions_of_other_kinds_are_calibrated_apart(
    folder: Path, data: Path, tmp_path: Path
) -> None:
    reasoner, other = load_reasoner(folder), tmp_path / "other.jsonl"
    rows = [{"question": f"Say which year {n} was", "answer": -1} for n in range(QUESTIONS)]
    other.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = run_of(data, tmp_path / FILE_NAME, "gaussian:0.1")
    found, reports = calibrate(reasoner, folder, replace(run, data=(str(data), str(other))))
    report = reports["gaussian:0.1"]
    own = found.find(SamplerSpec.parse("gaussian:0.1"), "majority")
    assert own is not None
    assert own.data == "held-out.jsonl, other.jsonl"
    assert own.ece_outside is not None
    assert len(report.curve.outside) == len(report.curve.inside)
    assert [one.kind for one in report.transfers] == [0, 1]
    assert report.transfers[1].excess > 0.3, "half of the others are right, of these none"
    # Half of the questions inside are answered rightly, and none outside.
    votes = Evidence(1.0, 0.5, 4, False)
    assert own.probability(replace(votes, novelty=1.0)) < 0.2 < own.probability(votes)
    reference = found.reference
    assert reference is not None
    assert reference.familiarity("Say which year 5 was").is_unfamiliar
    known = json.loads(data.read_text().splitlines()[0])["question"]
    assert not reference.familiarity(known).is_unfamiliar


def test_the_deterministic_sampler_is_one_trajectory_at_any_budget(
    folder: Path, data: Path, tmp_path: Path
) -> None:
    run = run_of(data, tmp_path / FILE_NAME, "deterministic")
    found = calibrate(load_reasoner(folder), folder, run)[0].find(
        SamplerSpec("deterministic"), "majority"
    )
    assert found is not None
    alone, many = Evidence(1.0, 0.7, 1, True), Evidence(1.0, 0.7, 8, False)
    assert found.probability(alone) == pytest.approx(found.probability(many), abs=0.02)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("embedded:test", "not held out"),
        ("embedded:train", "embedded:train is not held out"),
        ("few.jsonl", "49 questions are too few to calibrate on; give at least 50"),
        ("long.jsonl", "question 1 of the data"),
        ("/no/such/file", "no such data file"),
    ],
)
def test_data_that_cannot_calibrate_is_named(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    row, long = ({"question": words, "answer": 1} for words in ("How many?", "many " * 500))
    Path("few.jsonl").write_text(f"{json.dumps(row)}\n" * 49)
    Path("long.jsonl").write_text(f"{json.dumps(long)}\n" * 50)
    with pytest.raises(GtsError, match=said):
        calibrate(load_reasoner(folder), folder, run_of(source, tmp_path / FILE_NAME))
    assert not (tmp_path / FILE_NAME).exists()


@pytest.mark.parametrize(("questions", "is_warned"), [(199, True), (200, False)])
def test_a_calibration_on_fewer_than_200_questions_gives_a_warning(
    folder: Path,
    data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    questions: int,
    is_warned: bool,
) -> None:
    lines = data.read_text().splitlines(keepends=True)
    repeated = tmp_path / "rows.jsonl"
    repeated.write_text("".join(lines[n % QUESTIONS] for n in range(questions)))
    run = replace(run_of(repeated, tmp_path / FILE_NAME, "deterministic"), limit=questions)
    calibrate(load_reasoner(folder), folder, run)
    warning = f"warning: {questions} questions give a rough calibration; use 200 or more"
    assert (warning in capsys.readouterr().out) == is_warned


def test_budgets_and_samplers_are_read_and_refused() -> None:
    assert parse_budgets("8, 1,2,2") == (1, 2, 8)
    assert [str(s) for s in parse_samplers("gts,gts:default,gaussian")] == ["gts", "gaussian:1.0"]
    for text in ("", "0", "1,x", "-2", "1.5"):
        with pytest.raises(InputError, match="as in 1,2,4,8"):
            parse_budgets(text)
    with pytest.raises(InputError, match="samplers/NAME"):
        parse_samplers("gts:./somewhere")
