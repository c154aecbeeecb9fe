"""Panels over real HTTP: the same answer as in one process, through deaths, streams and deadlines."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

import latent
from latent.errors import InputError, NotFoundError
from latent.store import save_reasoner
from service.api.schemas import SolveResponse
from service.client import Client
from service.models import Catalog
from tests.reasoners import QUESTIONS, make_counting_reasoner, make_reasoner
from tests.service.server import RunningServer, save_with_sampler, wait_for

QUESTION = QUESTIONS[0]


@pytest.fixture(scope="module")
def panel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A panel folder beside the folders of its members."""
    place = tmp_path_factory.mktemp("panels")
    save_with_sampler(make_counting_reasoner(), place / "counting")
    save_with_sampler(make_counting_reasoner("coconut", "llama"), place / "other")
    text = make_reasoner("cot", dtype=torch.float32)
    save_reasoner(place / "texting", text.format, text._model, text.tokenizer)
    members = [
        {"model": "../counting", "sampler": "gts", "share": 2},
        {"model": "../other", "sampler": "gaussian:1.0", "share": 1},
    ]
    for name, split in (("both", "fixed"), ("careful", "adaptive")):
        (place / name).mkdir()
        described = {"format": 1, "members": members, "split": split, "sure": 0.9999}
        (place / name / "panel.json").write_text(json.dumps(described))
    return place / "both"


@pytest.fixture(scope="module")
def server(panel: Path) -> Iterator[RunningServer]:
    flags = (
        "--panel",
        f"quick=counting:gaussian:1.0,{panel.parent / 'texting'}",
        "--lane-limit",
        "16",
    )
    folders = (panel, panel.parent / "careful")
    with RunningServer(*folders, flags=flags, is_faulty=True) as running:
        yield running


def solve(server: RunningServer, question: str = QUESTION, **body: Any) -> httpx.Response:
    body = {"question": question, "seed": 3, "include": ["trajectories"], **body}
    return httpx.post(f"{server.url}/solve", json=body, timeout=120)


def test_the_server_answers_as_one_process_does(server: RunningServer, panel: Path) -> None:
    served = SolveResponse.model_validate(solve(server, budget=24).json())
    here = latent.load_panel(str(panel), device="cpu").solve(QUESTION, budget=24, seed=3)
    assert (served.model, served.budget_used) == ("both", 24)
    assert served.answer == here.answer
    texts = [(each.member, each.member_index, each.text) for each in served.trajectories or ()]
    assert texts == [(t.member, t.member_index, t.text) for t in here.trajectories]
    shown = [(each.votes, each.share, each.members) for each in served.candidates]
    assert shown == [(c.votes, pytest.approx(c.share), c.members) for c in here.candidates]
    labels = ["counting:gts", "other:gaussian:1.0"]
    assert [each.member for each in served.members or ()] == labels
    assert [each.usage.trajectories for each in served.members or ()] == [16, 8]
    assert sum(each.usage.thoughts for each in served.members or ()) == served.usage.thoughts


def test_a_smaller_budget_is_a_prefix_and_a_list_of_members_is_a_panel(
    server: RunningServer,
) -> None:
    whole, part = (solve(server, budget=n, model="quick").json() for n in (24, 5))
    assert part["trajectories"] == whole["trajectories"][:5]
    listed = solve(server, budget=24, model=["counting:gaussian:1.0", "texting"]).json()
    assert listed["model"] == "panel"
    assert listed["candidates"] == whole["candidates"]


def test_an_adaptive_split_that_is_never_sure_draws_what_a_fixed_one_does(
    server: RunningServer,
) -> None:
    fixed, adaptive = (solve(server, budget=12, model=name).json() for name in ("both", "careful"))
    votes = [{c["answer"]: c["votes"] for c in r["candidates"]} for r in (fixed, adaptive)]
    assert votes[0] == votes[1]


def test_a_killed_worker_loses_nothing_and_changes_nothing(server: RunningServer) -> None:
    before = solve(server, f"slow {QUESTION}", budget=48).json()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(solve, server, f"slow {QUESTION}", budget=48)
        wait_for(lambda: server.metric("gts_running_lanes") > 0)
        server.kill_worker()
        after = running.result().json()
    assert after["candidates"] == before["candidates"]
    assert after["trajectories"] == before["trajectories"]
    wait_for(server.is_ready)


def test_a_stream_shows_the_vote_grow_in_the_panels_order(server: RunningServer) -> None:
    with Client(server.url) as client:
        *rounds, last = client.stream(QUESTION, budget=48, seed=3, model=["counting", "texting"])
    assert isinstance(last, SolveResponse)
    counts = [each.budget_used for each in rounds]
    assert counts == sorted(counts)
    assert last.budget_used == 48


def test_a_deadline_gives_the_finished_prefix(server: RunningServer, tmp_path: Path) -> None:
    question = f"{QUESTION} first until {tmp_path / 'go'}"
    with ThreadPoolExecutor(1) as pool:
        # The rounds that hold a trajectory 0 end; the others wait for the file.
        running = pool.submit(solve, server, question, budget=96, deadline_ms=3000)
        answer = running.result()
        (tmp_path / "go").touch()
    part = answer.json()
    assert part["partial"]
    assert 0 < part["budget_used"] < 96
    whole = solve(server, question, budget=part["budget_used"]).json()
    assert whole["candidates"] == part["candidates"]


def test_a_client_that_goes_frees_the_lanes_of_all_members(
    server: RunningServer, tmp_path: Path
) -> None:
    cancelled = server.metric("gts_cancelled_total")
    body = {"question": f"until {tmp_path / 'go'}", "budget": 64, "model": "both"}
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{server.url}/solve", json=body, timeout=1)
    wait_for(lambda: server.metric("gts_cancelled_total") == cancelled + 1)
    assert server.metric("gts_open_questions") == 0
    assert server.metric("gts_waiting_lanes") == 0
    (tmp_path / "go").touch()


def test_every_member_is_diagnosed_with_its_own_sampler(server: RunningServer) -> None:
    body = {"question": QUESTION, "budget": 4, "seed": 3, "model": "both"}
    found = httpx.post(f"{server.url}/diagnose", json=body, timeout=60).json()
    labels = ["counting:gts", "other:gaussian:1.0"]
    assert [each["sampler"] for each in found["samplers"]] == labels
    refused = httpx.post(f"{server.url}/diagnose", json={**body, "samplers": ["gts"]}, timeout=60)
    assert (refused.status_code, refused.json()["error"]["param"]) == (422, "samplers")


def test_panels_are_listed_with_their_members(server: RunningServer) -> None:
    with Client(server.url) as client:
        models = client.models()
    assert models[0].id == "both"
    listed = {each.id: each.panel for each in models if each.kind == "panel"}
    assert set(listed) == {"both", "careful", "quick"}
    assert listed["careful"] is not None
    assert listed["careful"].split == "adaptive"
    assert [each.share for each in listed["careful"].members] == [2, 1]
    assert {"counting", "other", "texting"} <= {each.id for each in models}


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({"sampler": "gts"}, 422, "leave sampler out"),
        ({"vote": "centroid", "model": "quick"}, 422, "texting reasons in text"),
        ({"model": ["counting"]}, 422, "two members"),
        ({"model": ["counting", "counting:gts"]}, 422, "twice"),
        ({"model": ["counting", "nobody"]}, 404, "nobody"),
        ({"model": ["counting", "both"]}, 422, "both is a panel"),
        ({"model": ["counting", "texting:gts"]}, 422, "reasons in text"),
        ({"question": "raise"}, 500, "failed on this question"),
    ],
)
def test_what_a_panel_cannot_do_is_refused(
    server: RunningServer, body: dict[str, Any], status: int, said: str
) -> None:
    answer = solve(server, **body)
    assert (answer.status_code, answer.json()["error"]["message"].count(said)) == (status, 1)


def test_a_member_may_be_named_before_or_after_its_panel(panel: Path) -> None:
    member = str(panel.parent / "counting")
    for names in ([member, str(panel)], [str(panel), member]):
        catalog = Catalog(names)
        assert {model.name for model in catalog.all()} >= {"counting"}
        assert [one.name for one in catalog.panels()] == [panel.name]
    with pytest.raises(InputError, match="same name"):
        Catalog([member, str(panel), member])


def test_bad_panels_stop_the_start(panel: Path) -> None:
    place = str(panel.parent / "counting")
    for words, said in (
        ("counting,other", "is no panel"),
        ("two=counting", "two members"),
        ("counting=counting,coconut-tiny", "same name"),
    ):
        with pytest.raises(InputError, match=said):
            Catalog([place], [words])
    with pytest.raises(NotFoundError, match="nobody"):
        Catalog([place], ["two=counting,nobody"])
