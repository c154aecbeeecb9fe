"""The evaluation of a panel: what is drawn, compared and written, and that it can be resumed."""

import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from latent.errors import FormatError, MismatchError
from latent.familiarity import Familiarity
from latent.panel import Member, Panel, Place
from latent.panel_calibration import MemberWeights, PanelCalibration
from latent.specs import SamplerSpec
from latent.store import save_reasoner
from latent.votes import VoteKind
from tests.reasoners import QUESTIONS, make_counting_reasoner, make_reasoner
from tests.service.server import save_with_sampler
from tests.trajectories import trajectory
from trainer.evaluation.config import EvaluationConfig
from trainer.evaluation.panel_measures import Asked, summarise_panel
from trainer.evaluation.panel_times import Times
from trainer.evaluation.panels import evaluate_panel
from trainer.evaluation.report.panels import (
    panel_command,
    panel_table,
    panel_text,
    read_panel_summary,
)

PANEL = Panel("p", (Member("a", SamplerSpec("gts")), Member("b", SamplerSpec("gts"))), sure=0.6)
MAJORITIES: dict[str, VoteKind] = {"a:gts": "majority", "b:gts": "majority"}


def asked(truth: int, *answers: list[int]) -> Asked:
    drawn = {
        Place(member, index - 1): trajectory(index - 1, answer)
        for member, own in enumerate(answers)
        for index, answer in enumerate(own)
    }
    return Asked(Decimal(truth), drawn)


def test_members_alone_have_the_whole_budget_and_the_panel_divides_it() -> None:
    # a is right alone, b is not; together, with one deterministic and one sampled each, b decides.
    questions = [asked(7, [8, 7, 7, 7, 8], [9, 8, 8, 7, 7]), asked(7, [7] * 5, [7] * 5)]
    alone: Times = {"fixed": 2.0, "adaptive": 1.0, "early": 3.0}
    together: Times = {"fixed": 4.0, "adaptive": 2.0, "early": 1.0}
    times = {"alone": [alone, alone], "together": [together]}
    config = {"seed": 0, "budget": 4}
    seconds = {"a:gts": 0.1, "b:gts": 0.2}
    found = summarise_panel(
        PANEL, questions, 4, times, votes=MAJORITIES, seconds=seconds, config=config, data={}
    )
    right = {label: one["accuracy"]["value"] for label, one in found["members"].items()}
    assert right == {"a:gts": 1.0, "b:gts": 0.5}
    assert found["members"]["a:gts"]["deterministic"]["value"] == 0.5
    fixed, adaptive, early = (found["panels"][split] for split in ("fixed", "adaptive", "early"))
    assert fixed["accuracy"]["value"] == 0.5
    assert fixed["less"]["a:gts"]["value"] == -0.5
    assert fixed["trajectories"] == {"a:gts": 2.0, "b:gts": 2.0}
    # a's two agree on the second question, which is certain enough; on the first they do not.
    assert adaptive["trajectories"] == {"a:gts": 2.0, "b:gts": 1.0}
    # So do the first ones of both.
    assert early["trajectories"] == {"a:gts": 1.5, "b:gts": 1.5}
    half = {"value": 0.5, "low": 0.5, "high": 0.5}
    assert found["time"]["alone"]["adaptive"] == {"seconds": 1.0, "share": half}
    assert found["time"]["together"]["early"]["share"]["value"] == 0.25
    assert found["one_right"]["value"] == 1.0


def test_a_member_alone_has_its_own_vote() -> None:
    one = asked(7, [7, 7, 8, 8], [8, 8, 8, 8])
    chains = {place: -1.0 if each.answer == 7 else -2.0 for place, each in one.drawn.items()}
    drawn = {place: replace(each, chain_logprob=chains[place]) for place, each in one.drawn.items()}
    found = summarise_panel(
        PANEL,
        [replace(one, drawn=drawn)],
        3,
        {},
        votes={"a:gts": "likelihood", "b:gts": "majority"},
        seconds={"a:gts": 0.1, "b:gts": 0.2},
        config={"seed": 0, "budget": 3},
        data={},
    )
    assert {label: each["vote"] for label, each in found["members"].items()} == {
        "a:gts": "likelihood",
        "b:gts": "majority",
    }
    assert found["members"]["a:gts"]["accuracy"]["value"] == 1.0, "8 has two of three votes"
    assert found["members"]["b:gts"]["accuracy"]["value"] == 0.0


@pytest.fixture
def panel(tmp_path: Path) -> Path:
    folder = save_with_sampler(make_counting_reasoner(), tmp_path / "counting")
    members = [
        {"model": str(folder), "sampler": sampler, "share": 1}
        for sampler in ("gts", "gaussian:1.0")
    ]
    (tmp_path / "both").mkdir()
    described = {"format": 1, "members": members, "split": "adaptive", "sure": 0.9}
    (tmp_path / "both" / "panel.json").write_text(json.dumps(described))
    rows = [{"question": f"{QUESTIONS[0]} {n}", "answer": n} for n in range(4)]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def test_a_run_is_resumed_and_its_summary_is_read(panel: Path) -> None:
    config = EvaluationConfig(
        model=str(panel / "both"), data=str(panel / "data.jsonl"), samplers=(), budget=4, timed=2
    )
    out = panel / "out"
    whole = evaluate_panel(config, out)
    lines = (out / "members.jsonl").read_text().splitlines(keepends=True)
    assert len(lines) == 2 * 4
    (out / "members.jsonl").write_text("".join(lines[:3]) + lines[3][:20])
    again = evaluate_panel(config, out)
    for each in (whole, again):
        del each["time"], each["members"]  # times differ
    assert again == whole
    run = read_panel_summary(out / "summary.json")
    assert [row[0].text for row in panel_table(run).rows][-1] == "panel, added shares"
    assert "With a budget of 4 for 4 questions" in panel_text(run)
    assert panel_command(run, "runs/x").endswith("--budget 4 --timed 2 --seed 0 --out runs/x")
    with pytest.raises(MismatchError, match="budget = 4, not 8"):
        evaluate_panel(EvaluationConfig(config.model, config.data, (), budget=8), out)
    (out / "members.jsonl").write_text("{}\n")
    with pytest.raises(FormatError, match="line 1 is no result"):
        evaluate_panel(config, out)
    (out / "summary.json").write_text('{"version": 1}')
    with pytest.raises(FormatError, match="not a panel's summary"):
        read_panel_summary(out / "summary.json")


def test_the_chains_of_a_member_that_has_them_are_kept(panel: Path) -> None:
    text = make_reasoner("cot")
    save_reasoner(panel / "text", text.format, text._model, text.tokenizer)
    described = json.loads((panel / "both" / "panel.json").read_text())
    described["members"].append({"model": str(panel / "text"), "sampler": "token:1.0", "share": 1})
    (panel / "both" / "panel.json").write_text(json.dumps(described))
    config = EvaluationConfig(
        model=str(panel / "both"), data=str(panel / "data.jsonl"), samplers=(), budget=4, timed=1
    )
    whole = evaluate_panel(config, panel / "out")
    lines = (panel / "out" / "members.jsonl").read_text().splitlines()
    chains = {one["member"]: one["chain_logprobs"] for one in map(json.loads, lines)}
    assert set(chains) == {"counting:gts", "counting:gaussian:1.0", "text:token:1.0"}
    assert chains["counting:gts"] is None
    assert len(chains["text:token:1.0"]) == 1 + 4
    assert max(chains["text:token:1.0"]) < 0
    again = evaluate_panel(config, panel / "out")  # from what was written
    assert again["panel"] == whole["panel"]


def test_the_panel_votes_with_the_familiarity_of_the_question() -> None:
    """As it does when served: a new question has a lower probability, so that the split goes on."""
    weights = MemberWeights(share=2.0, confidence=0.0, named=0.0, unperturbed=0.0)
    fitted = PanelCalibration(
        vote="majority",
        weights=(weights, weights),
        none=0.0,
        novel=4.0,
        ceiling=1.0,
        budgets=(1, 4),
        ece=0.0,
        ece_outside=None,
        share_ece=0.0,
        questions=50,
        data="d",
        seed=0,
    )
    panel = replace(PANEL, calibrations=(fitted,))
    known = asked(7, [7] * 5, [7] * 5)
    new = replace(known, familiarity=Familiarity(novelty=1.0, percentile=0.0))
    for one, trajectories in ((known, 0.0), (new, 2.0)):
        found = summarise_panel(
            panel,
            [one],
            4,
            {},
            votes=MAJORITIES,
            seconds={"a:gts": 0.1, "b:gts": 0.2},
            config={"seed": 0, "budget": 4},
            data={},
        )
        assert found["panels"]["adaptive"]["trajectories"]["b:gts"] == trajectories
