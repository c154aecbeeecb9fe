"""A panel's order of trajectories, its combined vote, and its files."""

import json
import math
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import latent
from latent.errors import FormatError, InputError, MismatchError, NotFoundError
from latent.familiarity import Familiarity, make_reference
from latent.panel import Member, Panel, Place, as_cast, panel_tally
from latent.panel_calibration import MemberWeights, PanelCalibration
from latent.panel_file import (
    calibrated_panel,
    member_digests,
    parse_panel,
    read_panel,
    write_panel_calibrations,
)
from latent.specs import SamplerSpec
from latent.trajectory import Trajectory
from latent.zoo import resolve_model
from tests.trajectories import trajectory

GTS, TOKEN = SamplerSpec("gts"), SamplerSpec("token", value=1.0)
QUESTION = "Ivan has 88 apples. He buys 33 more. How many apples does Ivan have?"


def make_panel(*shares: float, **changes: Any) -> Panel:
    return Panel(
        "p", tuple(Member("abc"[n], GTS, share) for n, share in enumerate(shares)), **changes
    )


def make_calibration(
    *weights: tuple[float, ...], none: float = 0.0, ceiling: float = 1.0
) -> PanelCalibration:
    members = tuple(MemberWeights(*each) for each in weights)
    return PanelCalibration(
        "majority", members, none, 3.0, ceiling, (1, 32), 0.01, 0.02, 0.1, 100, "held-out", 0
    )


def cast(panel: Panel, *answers: list[int | None]) -> list[Trajectory]:
    """Trajectories of each member in turn, numbered in the panel's order."""
    found = [
        (trajectory(index - 1, answer), label)
        for own, label in zip(answers, panel.labels, strict=True)
        for index, answer in enumerate(own)
    ]
    return [as_cast(each, position, label) for position, (each, label) in enumerate(found)]


def test_members_take_turns_by_their_shares_and_begin_with_the_deterministic_trajectory() -> None:
    places = make_panel(2, 1).places(6)
    assert [place.member for place in places] == [0, 0, 1, 0, 0, 1]
    assert [place.index for place in places] == [-1, 0, -1, 1, 2, 0]


def test_a_budget_of_8_is_a_prefix_of_64() -> None:
    panel = make_panel(1, 3, 2)
    assert panel.places(64)[:8] == panel.places(8)


def test_an_adaptive_split_has_the_same_trajectories_member_by_member() -> None:
    panel = make_panel(1, 1, 1)
    adaptive = replace(panel, split="adaptive")
    places = adaptive.places(8)
    assert set(places) == set(panel.places(8))
    assert [place.member for place in places] == [0, 0, 0, 1, 1, 1, 2, 2]
    assert adaptive.stages(places) == (3, 6, 8)
    assert panel.stages(panel.places(8)) == (8,)


def test_an_early_split_has_them_too_a_quarter_of_the_budget_first() -> None:
    panel = make_panel(1, 1, 1)
    early = replace(panel, split="early")
    places = early.places(16)
    assert set(places) == set(panel.places(16))
    members = [place.member for place in places]
    assert members == [0, 0, 1, 2, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]
    for member in range(3):
        own = [place.index for place in places if place.member == member]
        assert own == list(range(-1, len(own) - 1))


def test_an_early_split_may_end_after_any_member_but_the_first_to_draw() -> None:
    early = make_panel(1, 1, 1, split="early")
    assert early.stages(early.places(16)) == (3, 4, 8, 12, 16)
    assert early.stages(early.places(4)) == (2, 3, 4)
    assert [early.stages(early.places(n)) for n in (1, 2)] == [(1,), (2,)]


def test_a_deterministic_member_draws_once() -> None:
    members = (Member("a", SamplerSpec("deterministic")), Member("b", TOKEN))
    assert Panel("p", members).places(4) == (Place(0, -1), Place(1, -1), Place(1, 0), Place(1, 1))
    assert len(Panel("p", (members[0], replace(members[0], model="c"))).places(9)) == 2


def test_a_panel_needs_two_different_members_and_a_budget() -> None:
    with pytest.raises(InputError, match="two members"):
        make_panel(1)
    with pytest.raises(InputError, match="a:gts twice"):
        Panel("p", (Member("a", GTS), Member("a", GTS)))
    with pytest.raises(InputError, match="budget"):
        make_panel(1, 1).places(0)


def test_without_a_calibration_shares_add() -> None:
    panel = make_panel(1, 1)
    # Shares of 7: 3/4 and 0; of 8: 1/4 and 1, though 7 has more votes.
    voted = panel_tally(panel, cast(panel, [7, 7, 7, 8], [8]), "majority")
    assert [(one.answer, one.votes) for one in voted.candidates] == [(8, 2), (7, 3)]
    assert [one.share for one in voted.candidates] == pytest.approx([5 / 8, 3 / 8])
    assert voted.winner.members == {"a:gts": 1, "b:gts": 1}
    assert voted.winner.trajectories == (3, 4)
    assert voted.probability is None


def test_the_likelihood_vote_is_taken_inside_each_member() -> None:
    panel = make_panel(1, 1)
    chains = {7: -1.0, 8: -2.0, 9: -3.0}
    voters = [
        replace(each, chain_logprob=chains[int(each.answer or 0)])
        for each in cast(panel, [8, 8, 7], [9, 9, 8])
    ]
    assert panel_tally(panel, voters, "majority").winner.answer == 8
    found = panel_tally(panel, voters, "likelihood")
    first, second = 1 / (1 + math.exp(-1)), 1 / (1 + math.exp(1))
    shares = {each.answer: each.share for each in found.candidates}
    assert shares[Decimal(7)] == pytest.approx(first / 2)
    assert shares[Decimal(8)] == pytest.approx((second + first) / 2)
    assert shares[Decimal(9)] == pytest.approx(second / 2)


def test_log_odds_of_the_members_add() -> None:
    # Only `named` counts: log-odds 2 from a and 1 from b; "none" has 0.
    calibration = make_calibration((0.0, 0.0, 2.0, 0.0), (0.0, 0.0, 1.0, 0.0))
    panel = make_panel(1, 1, calibrations=(calibration,))
    voted = panel_tally(panel, cast(panel, [7, 9], [8, 9]), "majority")
    e = 2.718281828459045
    odds = {Decimal(9): e**3, Decimal(7): e**2, Decimal(8): e}
    assert [one.answer for one in voted.candidates] == list(odds)
    assert voted.probability == pytest.approx(e**3 / (1 + sum(odds.values())))
    assert voted.winner.share == pytest.approx(e**3 / sum(odds.values()))


def test_share_confidence_and_the_deterministic_answer_have_weights() -> None:
    # 7 has 3 of 3 votes: log((3 + 1) / (0 + 1)); its confidence of 1/2 has log-odds 0.
    calibration = make_calibration((1.0, 5.0, 0.0, 0.5), (0.0, 0.0, 0.0, 0.0))
    panel = make_panel(1, 1, calibrations=(calibration,))
    voted = panel_tally(panel, cast(panel, [7, 7, 7], [8]), "majority")
    e = 2.718281828459045
    # 8, without votes of a: log((0 + 1) / (3 + 1)).
    assert voted.probability == pytest.approx(4 * e**0.5 / (1 + 4 * e**0.5 + 1 / 4))


def test_the_likeliest_chain_of_an_answer_has_a_weight() -> None:
    calibration = make_calibration((0.0, 0.0, 0.0, 0.0, 1.0), (0.0, 0.0, 0.0, 0.0, 1.0))
    panel = make_panel(1, 1, calibrations=(calibration,))
    drawn = cast(panel, [7, 7, 8], [8])
    chains = (0.2, 0.75, 0.1, None)  # that of b spells nothing
    drawn = [
        replace(each, chain_logprob=chain and math.log(chain))
        for each, chain in zip(drawn, chains, strict=True)
    ]
    voted = panel_tally(panel, drawn, "majority")
    # 0.75 has odds of 3, and 0.1 of 1/9.
    assert [one.answer for one in voted.candidates] == [7, 8]
    assert voted.probability == pytest.approx(3 / (1 + 3 + 1 / 9))


def test_on_a_new_question_votes_say_less_and_none_is_likelier_to_be_right() -> None:
    calibration = make_calibration((1.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 0.0))
    panel = make_panel(1, 1, calibrations=(calibration,))
    e = 2.718281828459045
    for novelty, seven, none in ((0.0, 4, 1.0), (0.5, 2, e**1.5), (1.0, 1, e**3)):
        voted = panel_tally(panel, cast(panel, [7, 7, 7], []), "majority", Familiarity(novelty, 0))
        assert voted.probability == pytest.approx(seven / (seven + none))


def test_no_probability_is_above_the_ceiling() -> None:
    calibration = make_calibration((1.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 0.0), ceiling=0.9)
    panel = make_panel(1, 1, calibrations=(calibration,))
    voted = panel_tally(panel, cast(panel, [7, 7, 7], []), "majority")
    assert voted.probability == pytest.approx(0.9 * 4 / 5)


def test_members_that_have_not_voted_say_nothing() -> None:
    calibration = make_calibration((1.0, 0.0, 0.0, 0.0), (9.0, 0.0, 0.0, 0.0))
    panel = make_panel(1, 1, calibrations=(calibration,))
    voted = panel_tally(panel, cast(panel, [7, 7, 7], []), "majority")
    assert voted.probability == pytest.approx(4 / 5)


def test_unreadable_answers_win_only_alone() -> None:
    calibration = make_calibration((1.0, 0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0))
    for panel in (make_panel(1, 1), make_panel(1, 1, calibrations=(calibration,))):
        assert (
            panel_tally(panel, cast(panel, [None, None, 3], [None]), "majority").winner.answer == 3
        )
        alone = panel_tally(panel, cast(panel, [None], [None]), "majority")
        assert (alone.winner.answer, alone.probability) == (None, None)
        assert not panel.is_sure(alone)


def test_an_adaptive_split_is_sure_by_probability_or_else_by_the_certainty_of_the_votes() -> None:
    panel = make_panel(1, 1, split="adaptive", sure=0.9)
    assert panel.is_sure(panel_tally(panel, cast(panel, [7] * 4, []), "majority"))  # 31/32
    assert not panel.is_sure(panel_tally(panel, cast(panel, [7, 7], []), "majority"))  # 7/8
    calibrated = replace(panel, calibrations=(make_calibration((1.0, 0, 0, 0), (1.0, 0, 0, 0)),))
    few, many = ([7] * 7, []), ([7] * 9, [])  # 8/9 and 10/11
    assert not calibrated.is_sure(panel_tally(calibrated, cast(calibrated, *few), "majority"))
    assert calibrated.is_sure(panel_tally(calibrated, cast(calibrated, *many), "majority"))


def write_panel(folder: Path, **changes: Any) -> Path:
    members = [
        {"model": "coconut-tiny", "sampler": "gts", "share": 1},
        {"model": "cot-tiny", "sampler": "token:1.0", "share": 2},
    ]
    data = {"format": 1, "members": members, "split": "fixed", "sure": 0.9, **changes}
    folder.mkdir(exist_ok=True)
    (folder / "panel.json").write_text(json.dumps(data))
    return folder


def test_panel_json_names_embedded_reasoners_or_folders_beside_it(tmp_path: Path) -> None:
    (tmp_path / "mine").symlink_to(resolve_model("cot-tiny"))
    members = [
        {"model": "coconut-tiny", "sampler": "gts", "share": 1},
        {"model": "../mine", "sampler": "dropout:0.1", "share": 0.5},
    ]
    files = read_panel(write_panel(tmp_path / "two", members=members))
    assert files.panel.labels == ["coconut-tiny:gts", "cot-tiny:dropout:0.1"]
    assert [member.share for member in files.panel.members] == [1, 0.5]
    assert (files.panel.name, files.panel.split) == ("two", "fixed")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"members": []}, "two members"),
        ({"members": 3}, "members must be a list"),
        ({"split": "random"}, "split must be one of fixed, adaptive, early"),
        ({"sure": 1.5}, "sure must be a probability"),
        ({"format": 2}, "format 2 is not 1"),
        ({"weights": []}, "weights is unknown"),
        ({"members": [{"model": "nobody", "sampler": "gts", "share": 1}]}, "nobody"),
        ({"members": [{"model": "cot-tiny", "sampler": "gts", "share": 1}]}, "reasons in text"),
        ({"members": [{"model": "cot-tiny", "sampler": "token", "share": 0}]}, "share must be"),
        ({"members": [{"model": "cot-tiny", "share": 1}]}, r"members\[0\].sampler is missing"),
    ],
)
def test_a_bad_panel_json_is_refused_by_field(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(FormatError, match=message):
        read_panel(write_panel(tmp_path / "bad", **changes))


def test_a_panel_of_text_has_default_samplers_and_equal_shares() -> None:
    panel = parse_panel("quick", ["coconut-tiny", " cot-tiny:token:0.7"]).panel
    assert panel.labels == ["coconut-tiny:gts@auto", "cot-tiny:token:0.7"]
    assert {member.share for member in panel.members} == {1.0}
    for members, message in (([":gts", "cot-tiny"], "names no model"), (["nobody", "a"], "nobody")):
        with pytest.raises((InputError, NotFoundError), match=message):
            parse_panel("bad", members)


def test_a_calibration_is_of_these_members(tmp_path: Path) -> None:
    files = read_panel(write_panel(tmp_path / "two"))
    assert calibrated_panel(files, ["x", "y"]).calibrations == ()
    digests = member_digests(files, ["x", "y"])
    reference, _ = make_reference(["How many has she?", "How many has he?"])
    fitted = make_calibration((0.1, 0.2, -0.3, 0.4), (1.0, 0.0, 0.0, 0.0), none=2.5, ceiling=0.9)
    path = tmp_path / "two" / "calibration.json"
    write_panel_calibrations(path, digests, [fitted], reference)
    found = calibrated_panel(files, ["x", "y"])
    assert (found.calibrations, found.reference) == ((fitted,), reference)
    with pytest.raises(MismatchError, match=r"cot-tiny:token:1\.0 has changed"):
        calibrated_panel(files, ["x", "z"])
    other = read_panel(write_panel(tmp_path / "two", members=_swapped(tmp_path)))
    with pytest.raises(MismatchError, match="the panel has cot-tiny"):
        calibrated_panel(other, ["y", "x"])
    data = json.loads(path.read_text())
    data["fitted"][0]["ceiling"] = 1.1
    path.write_text(json.dumps(data))
    with pytest.raises(FormatError, match=r"fitted\[0\].ceiling must be above 0 and at most 1"):
        calibrated_panel(files, ["x", "y"])
    del data["fitted"][0]["ceiling"]  # as in a file of an earlier version
    del data["fitted"][0]["weights"][0]["likelihood"]
    path.write_text(json.dumps(data))
    assert calibrated_panel(files, ["x", "y"]).calibrations == (replace(fitted, ceiling=1.0),)
    data["fitted"][0]["weights"][0]["share"] = -1
    path.write_text(json.dumps(data))
    with pytest.raises(FormatError, match=r"fitted\[0\].weights\[0\].share must not be negative"):
        calibrated_panel(files, ["x", "y"])


def _swapped(tmp_path: Path) -> list[dict[str, Any]]:
    members = json.loads((tmp_path / "two" / "panel.json").read_text())["members"]
    return list(reversed(members))


def test_the_embedded_panel_solves_and_draws_what_its_members_would() -> None:
    loaded, other = latent.load_panel("panel-tiny"), latent.load_panel("panel-tiny")
    loaded.panel = other.panel = replace(loaded.panel, split="fixed")
    solved, again = (each.solve(QUESTION, budget=9, seed=7) for each in (loaded, other))
    assert solved.trajectories == again.trajectories
    assert solved.confidence_kind == "calibrated"
    assert solved.members is not None
    assert sum(work.trajectories for work in solved.members) == len(solved.trajectories)
    own = [each for each in solved.trajectories if each.member == "coconut-tiny:gts@auto"]
    alone = latent.load("coconut-tiny").solve(
        QUESTION, budget=3, seed=7, include_deterministic=True
    )
    assert [each.member_index for each in own] == [-1, 0, 1]
    assert [each.text for each in own] == [each.text for each in alone.trajectories]


def test_a_fixed_split_uses_the_whole_budget_and_the_others_less_where_they_are_sure() -> None:
    loaded = latent.load_panel("panel-tiny")
    counts = {}
    cases = (("fixed", 0.9), ("adaptive", 0.51), ("early", 0.51), ("early", 0.9999999))
    for split, sure in cases:
        loaded.panel = replace(loaded.panel, split=split, sure=sure)  # type: ignore[arg-type]
        solved = loaded.solve(QUESTION, budget=12, seed=7)
        counts[split, sure] = len(solved.trajectories), solved.ended_by
    assert counts == {
        ("fixed", 0.9): (12, "budget"),
        ("adaptive", 0.51): (4, "certainty"),
        ("early", 0.51): (2, "certainty"),
        ("early", 0.9999999): (12, "budget"),
    }


def test_what_is_no_panel_is_refused() -> None:
    with pytest.raises(NotFoundError, match="no panel"):
        latent.load_panel("coconut-tiny")
    with pytest.raises(NotFoundError, match="is a panel of several reasoners"):
        latent.load("panel-tiny")
    with pytest.raises(InputError, match="centroid"):
        latent.load_panel("panel-tiny").solve(QUESTION, vote="centroid")
    with pytest.raises(InputError, match="no calculator reads the thoughts of coconut-tiny"):
        latent.load_panel("panel-tiny").solve(QUESTION, vote="likelihood")
