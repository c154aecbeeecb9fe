"""The probability that a vote is right, worked by hand, and the file that keeps its model."""

import json
import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from latent.calibration import Calibrations, Confidence, Evidence, confidence_of, evidence_of
from latent.calibration_file import (
    FILE_NAME,
    load_calibrations,
    read_calibrations,
    user_file,
    write_calibrations,
)
from latent.errors import FormatError, MismatchError
from latent.familiarity import Familiarity, make_reference
from latent.folders import SamplerCard, fingerprint, weights_digest
from latent.samplers import GaussianThoughtSampler
from latent.specs import SamplerSpec
from latent.store import save_reasoner, save_sampler
from latent.verifier_file import folder_verifier, user_verifier
from latent.votes import Tally, tally
from tests.calibrations import make_calibration
from tests.reasoners import make_reasoner
from tests.trajectories import trajectory
from tests.verifiers import add_verifier

CALIBRATION = make_calibration()


def voted(*answers: int | None, first: int = 0, confidence: float = 0.5) -> Tally:
    return tally([trajectory(first + n, answer, confidence) for n, answer in enumerate(answers)])


def sigmoid(logit: float) -> float:
    return 1 / (1 + math.exp(-logit))


def test_without_a_calibration_the_confidence_is_the_share() -> None:
    assert confidence_of(voted(7, 7, 7, 8), None) == Confidence(0.75, "share")


def test_the_probability_is_worked_out_by_hand() -> None:
    # 3 of 4 votes: (3 + 1) of (4 + 2), so log 2; a confidence of ½ has log-odds 0; log₂4 is half way
    # to log₂16.
    found = confidence_of(voted(7, 7, 7, 8), CALIBRATION)
    assert found.kind == "calibrated"
    assert found.value == pytest.approx(sigmoid(-1 + 0.25 - 0.25 / 4 + 1.5 * math.log(2)))
    surer = confidence_of(voted(7, 7, 7, 8, confidence=0.9), CALIBRATION)
    expected = sigmoid(-1 + 0.25 - 0.25 / 4 + 1.5 * math.log(2) + 0.375 * math.log(9))
    assert surer.value == pytest.approx(expected)


def test_the_deterministic_trajectory_alone_has_a_weight_of_its_own() -> None:
    alone = confidence_of(voted(7, first=-1), CALIBRATION)
    assert alone.value == pytest.approx(sigmoid(-1 - 0.25 + 0.75 + math.log(2)))
    sampled = confidence_of(voted(7, first=0), CALIBRATION)
    assert sampled.value == pytest.approx(sigmoid(-1 - 0.25 + math.log(2)))
    inside = voted(7, 7, 7, 8, first=-1)
    assert confidence_of(inside, CALIBRATION) == confidence_of(voted(7, 7, 7, 8), CALIBRATION)


def test_a_new_question_has_other_weights_and_those_of_a_half_new_one_lie_between() -> None:
    votes = voted(7, 7, 7, 8, confidence=0.9)
    known = -1 + 0.25 - 0.25 / 4 + 1.5 * math.log(2) + 0.375 * math.log(9)
    new = -3 + 0.5 * math.log(2) + 0.125 * math.log(9)
    for novelty, expected in ((0.0, known), (1.0, new), (0.5, (known + new) / 2)):
        found = confidence_of(votes, CALIBRATION, Familiarity(novelty, 0.5))
        assert found.value == pytest.approx(sigmoid(expected))


def test_the_likelihood_of_the_winners_chain_has_a_weight_if_it_is_known() -> None:
    weights = replace(CALIBRATION.coefficients, likelihood=2.0, likelihood_novel=0.5)
    own = replace(CALIBRATION, coefficients=weights)
    plain = Evidence(share=0.75, confidence=0.5, budget=4, is_unperturbed=False)
    assert own.probability(plain) == CALIBRATION.probability(plain)
    logit = -1 + 0.25 - 0.25 / 4 + 1.5 * math.log(2)
    likely = replace(plain, likelihood=0.8)
    assert own.probability(likely) == pytest.approx(sigmoid(logit + 2 * math.log(4)))
    new = replace(likely, novelty=1.0)
    expected = sigmoid(-3 + 0.5 * math.log(2) + 0.5 * math.log(4))
    assert own.probability(new) == pytest.approx(expected)
    cast = [replace(trajectory(n, 7), chain_logprob=math.log(0.8)) for n in range(2)]
    assert evidence_of(tally(cast)).likelihood == pytest.approx(0.8)


def test_a_file_from_before_likelihoods_has_no_weight_for_them(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    write_calibrations(path, Calibrations("f", (CALIBRATION,)))
    data = json.loads(path.read_text())
    for name in ("likelihood", "likelihood_novel"):
        del data["fitted"][0]["coefficients"][name]
    path.write_text(json.dumps(data))
    assert read_calibrations(path).fitted == (CALIBRATION,)


def test_the_users_own_file_goes_before_that_in_the_folder(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    own = fingerprint(folder)
    shipped, mine = Calibrations(own), Calibrations(own, (CALIBRATION,))
    write_calibrations(folder / FILE_NAME, shipped)
    assert load_calibrations(folder, own) == shipped
    write_calibrations(user_file(folder.name, own), mine)
    assert load_calibrations(folder, own) == mine
    assert load_calibrations(folder, own) != shipped


def test_an_answer_that_cannot_be_read_is_not_right() -> None:
    assert confidence_of(voted(None, None), CALIBRATION) == Confidence(0.0, "calibrated")
    assert confidence_of(voted(None, None), None).kind == "share"


def test_the_budget_is_what_voted() -> None:
    assert evidence_of(voted(7, 7, None, 8)) == Evidence(0.5, 0.5, 4, False)


def test_budgets_outside_the_fitted_range_are_clamped() -> None:
    few, many = (replace(CALIBRATION, budgets=span) for span in ((4, 16), (1, 8)))
    lone, crowd = Evidence(0.8, 0.6, 1, False), Evidence(0.8, 0.6, 64, False)
    assert few.probability(lone) == few.probability(replace(lone, budget=4))
    assert many.probability(crowd) == many.probability(replace(crowd, budget=8))
    only = replace(CALIBRATION, budgets=(8, 8))
    assert only.probability(lone) == only.probability(crowd)


@pytest.mark.parametrize("confidence", [0.0, 1.0])
@pytest.mark.parametrize("share", [0.0, 1.0])
def test_the_edges_are_finite(share: float, confidence: float) -> None:
    steep = replace(CALIBRATION.coefficients, share_many=1000.0, confidence_many=1000.0)
    found = replace(CALIBRATION, coefficients=steep).probability(
        Evidence(share, confidence, 16, False)
    )
    assert 0 <= found <= 1


def test_a_calibration_is_found_by_sampler_and_vote() -> None:
    own = make_calibration(sampler="gts", sampler_fingerprint="f")
    held = Calibrations("x", (CALIBRATION, own))
    assert held.find(SamplerSpec.parse("gaussian"), "majority") == CALIBRATION
    assert held.find(SamplerSpec.parse("gaussian"), "best") is None
    assert held.find(SamplerSpec.parse("gaussian:2"), "majority") is None
    assert held.find(SamplerSpec.parse("gts:default"), "majority") == own
    assert held.find(SamplerSpec.parse("gts:./default"), "majority") is None


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reasoner folder with a sampler."""
    reasoner = make_reasoner("coconut", dtype=torch.float32)
    folder = tmp_path_factory.mktemp("calibrated") / "coconut"
    save_reasoner(folder, reasoner.format, reasoner._model, reasoner.tokenizer)
    card = SamplerCard("gts", 32, fingerprint(folder))
    save_sampler(folder / "samplers" / "default", GaussianThoughtSampler(32), card)
    return folder


@pytest.fixture
def folder(served: Path) -> Path:
    (served / FILE_NAME).unlink(missing_ok=True)
    return served


def test_a_file_comes_back_as_it_was_written_and_leaves_the_fingerprint_alone(folder: Path) -> None:
    before = fingerprint(folder)
    assert load_calibrations(folder, before) == Calibrations(before)
    own = weights_digest(folder / "samplers" / "default")
    learned = make_calibration(sampler="gts", vote="best", sampler_fingerprint=own)
    reference, _ = make_reference(["How many has she?", "How many are 3 and 4?"])
    written = Calibrations(before, (CALIBRATION, learned), reference)
    write_calibrations(folder / FILE_NAME, written)
    assert load_calibrations(folder, before) == written
    assert fingerprint(folder) == before


def test_a_calibration_for_another_reasoner_is_refused(folder: Path) -> None:
    write_calibrations(folder / FILE_NAME, Calibrations("0123456789abcdef", (CALIBRATION,)))
    with pytest.raises(
        MismatchError, match=r"calibration\.json: .*another reasoner.*gts calibrate"
    ):
        load_calibrations(folder, fingerprint(folder))


@pytest.mark.parametrize(
    ("sampler", "said"), [("gts", "has changed"), ("gts:gone", "'gts:gone' is not in")]
)
def test_a_calibration_for_another_sampler_is_refused(
    folder: Path, sampler: str, said: str
) -> None:
    stale = make_calibration(sampler=sampler, sampler_fingerprint="0123")
    write_calibrations(folder / FILE_NAME, Calibrations(fingerprint(folder), (stale,)))
    with pytest.raises(MismatchError, match=said):
        load_calibrations(folder, fingerprint(folder))


def test_a_calibration_of_the_verifiers_vote_is_used_with_that_verifier_only(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another verifier, such as the user's own, leaves the other votes calibrated."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    own, place = fingerprint(folder), shutil.copytree(folder, tmp_path / "verified")
    add_verifier(place)
    digest = weights_digest(folder_verifier(place))
    of_verifier = make_calibration(vote="verifier", verifier_fingerprint=digest)
    written = Calibrations(own, (CALIBRATION, of_verifier))
    write_calibrations(place / FILE_NAME, written)
    assert load_calibrations(place, own) == written
    shutil.copytree(folder_verifier(place), user_verifier("verified", own))
    assert load_calibrations(place, own) == written
    weights = user_verifier("verified", own) / "verifier.safetensors"
    changed = {name: tensor + 1 for name, tensor in load_file(weights).items()}
    save_file(changed, weights)
    assert load_calibrations(place, own).fitted == (CALIBRATION,)
    shutil.rmtree(user_verifier("verified", own))
    shutil.rmtree(folder_verifier(place))
    assert load_calibrations(place, own).fitted == (CALIBRATION,)


def test_the_other_votes_are_written_without_a_verifiers_fingerprint(folder: Path) -> None:
    write_calibrations(folder / FILE_NAME, Calibrations("f", (CALIBRATION,)))
    assert "verifier_fingerprint" not in (folder / FILE_NAME).read_text()


def _entry(**values: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda data: data["fitted"][0].update(values)


def _weight(**values: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda data: data["fitted"][0]["coefficients"].update(values)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda data: data.pop("format"), "format None is not 2"),
        (lambda data: data.update(format=1), "format 1 is not 2; run gts calibrate again"),
        (lambda data: data.pop("reference"), "reference is missing"),
        (lambda data: data["reference"].update(quantiles="0.2 0.1"), "numbers that ascend"),
        (lambda data: data["reference"].update(quantiles="x"), "could not convert"),
        (lambda data: data["reference"].update(following=[]), r"reference\.following must be"),
        (lambda data: data.update(extra=1), "extra is unknown"),
        (lambda data: data.update(reasoner_fingerprint=1), "reasoner_fingerprint must be a text"),
        (lambda data: data.update(fitted={}), "fitted must be a list"),
        (lambda data: data["fitted"].append(3), r"fitted\[1\] must be an object"),
        (lambda data: data["fitted"].append(data["fitted"][0]), "same sampler and vote twice"),
        (lambda data: data["fitted"][0].pop("ece"), r"fitted\[0\]\.ece is missing"),
        (_entry(sampler="magic"), "unknown sampler 'magic'"),
        (_entry(vote="loudest"), "unknown vote 'loudest'"),
        (_entry(budgets=[4, 2]), r"fitted\[0\]\.budgets must be"),
        (_entry(budgets=[1.0, 2]), "the smallest and the largest"),
        (_entry(ece=1.5), r"fitted\[0\]\.ece must be between 0 and 1"),
        (_entry(questions="many"), r"fitted\[0\]\.questions must be a whole number"),
        (_entry(sampler_fingerprint=3), r"fitted\[0\]\.sampler_fingerprint must be a text"),
        (_entry(coefficients=[]), r"fitted\[0\]\.coefficients must be an object"),
        (_weight(share_few=-0.1), r"coefficients\.share_few must not be negative"),
        (_weight(likelihood=-0.1), r"coefficients\.likelihood must not be negative"),
        (_weight(intercept=math.nan), r"coefficients\.intercept must be a finite number"),
        (_weight(budget=True), r"coefficients\.budget must be a finite number"),
    ],
)
def test_a_malformed_file_is_named_with_its_field(
    tmp_path: Path, spoil: Callable[[dict[str, Any]], Any], said: str
) -> None:
    path = tmp_path / FILE_NAME
    reference, _ = make_reference(["a b c", "a b d"])
    write_calibrations(path, Calibrations("f", (CALIBRATION,), reference))
    data = json.loads(path.read_text())
    spoil(data)
    path.write_text(json.dumps(data))
    with pytest.raises(FormatError, match=said) as caught:
        read_calibrations(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "null"])
def test_a_file_that_is_no_object_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / FILE_NAME
    path.write_text(text)
    with pytest.raises(FormatError, match=r"calibration\.json"):
        read_calibrations(path)
