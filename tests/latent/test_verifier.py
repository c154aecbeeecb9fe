"""Verifiers: what they read, what a score depends on, how they are stored and refused."""

import json
import shutil
from pathlib import Path

import pytest
import torch

import latent
from latent.errors import FormatError, GtsError, InputError, MismatchError, SpecError
from latent.reasoner import Reasoner
from latent.rollout import Ask, Rollout, rollout
from latent.stopping import Stop
from latent.store import load_reasoner
from latent.verifier import load_verifier, verifier_shape
from latent.verifier_file import find_verifier, read_verifier_card, user_verifier
from tests.reasoners import QUESTIONS, make_counting_reasoner, make_reasoner
from tests.service.server import save_with_sampler
from tests.verifiers import add_verifier, make_verifier

SAMPLER = "gaussian:1.0"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reasoner without a verifier."""
    return save_with_sampler(make_counting_reasoner(), tmp_path_factory.mktemp("models") / "plain")


@pytest.fixture(scope="module")
def verified(folder: Path) -> Path:
    """The same reasoner with a verifier."""
    copy = shutil.copytree(folder, folder.parent / "verified")
    add_verifier(copy)
    return copy


def drawn(reasoner: Reasoner, lanes: int, *others: int, lane_limit: int = 512) -> Rollout:
    """Lanes of the first question, with lanes of other questions in the same pass."""
    asks = [
        Ask(reasoner.encode(QUESTIONS[n]), seed=n, indices=tuple(range(count)))
        for n, count in enumerate((lanes, *others))
    ]
    sampler, verifier = reasoner.sampler(SAMPLER), make_verifier(reasoner)
    return rollout(
        reasoner, sampler, asks, verifier=verifier, keep_states=True, lane_limit=lane_limit
    )[0]


def test_it_reads_the_states_that_thoughts_and_tokens_are_made_from() -> None:
    reasoner = make_counting_reasoner()
    done = drawn(reasoner, 5)
    assert done.verified is not None
    assert done.states is not None
    thoughts = reasoner.format.thoughts
    states = done.verified.states
    torch.testing.assert_close(states[:, :thoughts], done.states)
    for lane, trajectory in enumerate(done.trajectories):
        assert trajectory.final_thought is not None
        final = torch.from_numpy(trajectory.final_thought).to(states)
        torch.testing.assert_close(states[lane, thoughts], final)
        own = states[lane, thoughts + 1 :][: len(trajectory.tokens)]
        assert tuple(reasoner.logits(own).argmax(-1).tolist()) == trajectory.tokens[: len(own)]
        logprobs = done.verified.logprobs[lane, : len(own)].tolist()
        expected = [max(each, -8.0) for each in trajectory.token_logprobs[: len(own)]]
        assert logprobs == pytest.approx(expected, abs=1e-6)


def test_nothing_is_read_behind_the_end_of_a_text() -> None:
    done = drawn(make_counting_reasoner(), 16)
    assert done.verified is not None
    first = make_counting_reasoner().format.thoughts + 1
    lengths = [len(trajectory.tokens) for trajectory in done.trajectories]
    room = done.verified.logprobs.shape[1]
    assert min(lengths) < room  # else nothing is tested
    for lane, length in enumerate(lengths):
        assert not done.verified.states[lane, first + length :].any()
        assert not done.verified.logprobs[lane, length:].any()


@pytest.mark.parametrize(
    ("others", "lane_limit"), [((), 512), ((1, 7), 512), ((40,), 512), ((), 6)]
)
def test_a_score_depends_on_no_other_trajectory(others: tuple[int, ...], lane_limit: int) -> None:
    reasoner = make_counting_reasoner()
    expected = [trajectory.score for trajectory in drawn(reasoner, 20, 3).trajectories]
    found = [t.score for t in drawn(reasoner, 20, *others, lane_limit=lane_limit).trajectories]
    assert len(set(expected)) > 5
    if reasoner.reproducibility.kind == "bits":
        assert found == expected
    else:
        assert found == pytest.approx(expected)


def test_without_a_verifier_trajectories_have_no_score_and_are_the_same() -> None:
    reasoner = make_counting_reasoner()
    ask = Ask(reasoner.encode(QUESTIONS[0]), seed=0, indices=tuple(range(20)))
    plain = rollout(reasoner, reasoner.sampler(SAMPLER), [ask])[0].trajectories
    scored = drawn(reasoner, 20).trajectories
    assert [each.score for each in plain] == [None] * 20
    assert [each.text for each in plain] == [each.text for each in scored]
    assert [each.logprob for each in plain] == [each.logprob for each in scored]


def test_the_vote_adds_up_scores(verified: Path) -> None:
    solved = load_reasoner(verified).solve(
        QUESTIONS[0], budget=16, sampler=SAMPLER, seed=1, vote="verifier"
    )
    scores = {each.index: each.score or 0.0 for each in solved.trajectories}
    for candidate in solved.candidates:
        own = sum(scores[index] for index in candidate.trajectories)
        assert candidate.share == pytest.approx(own / sum(scores.values()))
    assert solved.confidence_kind == "share"


def test_a_saved_verifier_gives_the_same_scores_but_for_half_precision(verified: Path) -> None:
    reasoner = load_reasoner(verified)
    lanes = drawn(reasoner, 8).verified
    assert reasoner.verifier is not None
    assert lanes is not None
    expected = make_verifier(reasoner).scores(lanes)
    assert reasoner.verifier.scores(lanes) == pytest.approx(expected, rel=0.02)


def test_an_overflowed_lane_gets_the_lowest_score() -> None:
    reasoner = make_counting_reasoner()
    lanes = drawn(reasoner, 4).verified
    assert lanes is not None
    lanes.states[1] = torch.nan
    scores = make_verifier(reasoner).scores(lanes)
    assert scores[1] == min(scores)
    assert scores[1] > 0


def test_a_reasoner_without_one_names_the_command(folder: Path) -> None:
    with pytest.raises(InputError, match="plain has none: gts train verifier") as caught:
        load_reasoner(folder).solve(QUESTIONS[0], vote="verifier")
    assert caught.value.param == "vote"
    with pytest.raises(InputError, match="reasons in text"):
        make_reasoner("cot").solve(QUESTIONS[0], vote="verifier")
    with pytest.raises(InputError, match="a panel weighs its members"):
        latent.load_panel("panel-tiny").solve(QUESTIONS[0], vote="verifier")


def test_a_text_reasoner_can_have_none() -> None:
    with pytest.raises(SpecError, match="no thoughts to verify"):
        verifier_shape(make_reasoner("cot"), 16)


@pytest.mark.parametrize("wish", [{"stop": Stop("confidence", 0.9)}, {"abstain_below": 0.5}])
def test_what_needs_a_calibration_is_refused(verified: Path, wish: dict[str, object]) -> None:
    with pytest.raises(InputError, match="vote verifier has none; run gts calibrate"):
        load_reasoner(verified).solve(QUESTIONS[0], sampler=SAMPLER, vote="verifier", **wish)  # type: ignore[arg-type]


def test_the_users_own_verifier_comes_first(
    verified: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    fingerprint = load_reasoner(verified).fingerprint
    assert find_verifier(verified, fingerprint) == verified / "verifiers" / "default"
    own = user_verifier("verified", fingerprint)
    shutil.copytree(verified / "verifiers" / "default", own)
    assert find_verifier(verified, fingerprint) == own


def test_a_verifier_of_other_weights_or_another_shape_is_refused(
    verified: Path, tmp_path: Path
) -> None:
    with pytest.raises(MismatchError, match="trained for another reasoner"):
        find_verifier(verified, "0" * 64)
    copy = shutil.copytree(verified / "verifiers" / "default", tmp_path / "it")
    card = json.loads((copy / "verifier.json").read_text())
    card["shape"]["thoughts"] += 1
    (copy / "verifier.json").write_text(json.dumps(card))
    with pytest.raises(MismatchError, match="'thoughts': 4"):
        load_verifier(load_reasoner(verified), copy)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"format": 2}, "format 2"),
        ({"shape": {"width": 32}}, "shape.thoughts is missing"),
        ({"shape": {"width": 0, "thoughts": 1, "answer_tokens": 1, "hidden": 1}}, "shape.width"),
        ({"reasoner_fingerprint": 7}, "reasoner_fingerprint must be a text"),
        ({"more": 1}, "more is unknown"),
    ],
)
def test_a_damaged_card_is_refused_by_field(
    verified: Path, tmp_path: Path, change: dict[str, object], named: str
) -> None:
    card = json.loads((verified / "verifiers" / "default" / "verifier.json").read_text())
    (tmp_path / "verifier.json").write_text(json.dumps(card | change))
    with pytest.raises(FormatError, match=named):
        read_verifier_card(tmp_path)


def test_damaged_weights_are_refused(verified: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(verified / "verifiers" / "default", tmp_path / "it")
    weights = copy / "verifier.safetensors"
    weights.write_bytes(weights.read_bytes()[:-2] + b"\x00\x01")
    with pytest.raises(GtsError, match=r"verifier\.safetensors is damaged"):
        load_verifier(load_reasoner(verified), copy)
