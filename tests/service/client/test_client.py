"""The clients and `gts solve --url` against the real server."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.main import main
from service.api.schemas import SolveResponse
from service.client import AsyncClient, Client, ClientError, Retries, RoundEvent
from service.errors import ErrorResponse
from tests.reasoners import QUESTIONS
from tests.service.server import TOKEN, RunningServer

QUESTION = QUESTIONS[0]
PATIENT = Retries(tries=1000, seconds=120.0)


def what_counts(response: SolveResponse) -> SolveResponse:
    """Leave out what differs between two runs of the same question."""
    nowhen = response.timing_ms.model_copy(
        update=dict.fromkeys(("queue", "prefill", "thoughts", "decode", "total"), 0.0)
    )
    return response.model_copy(update={"id": "", "timing_ms": nowhen})


@pytest.fixture
def client(server: RunningServer) -> Iterator[Client]:
    with Client(server.url) as client:
        yield client


def test_solve_gives_the_typed_response(client: Client) -> None:
    solved = client.solve(
        QUESTION,
        budget=16,
        sampler="gaussian:0.5",
        vote="confidence",
        model="counting",
        seed=3,
        include_deterministic=True,
        deadline_ms=60_000,
        include=["trajectories"],
    )
    assert (solved.model, solved.sampler, solved.seed) == ("counting", "gaussian:0.5", 3)
    assert solved.answer is not None
    assert [t.index for t in solved.trajectories or ()] == [-1, *range(15)]


def test_the_drawn_seed_gives_the_same_answer_again(client: Client) -> None:
    solved = client.solve(QUESTION, budget=64, stop={"certainty": 0.9})
    again = client.solve(QUESTION, budget=64, stop={"certainty": 0.9}, seed=solved.seed)
    assert what_counts(again) == what_counts(solved)


def test_the_last_event_of_a_stream_is_what_solve_gives(client: Client) -> None:
    *rounds, last = client.stream(QUESTION, budget=200, seed=3)
    assert isinstance(last, SolveResponse)
    assert what_counts(last) == what_counts(client.solve(QUESTION, budget=200, seed=3))
    assert all(isinstance(event, RoundEvent) for event in rounds)
    used = [event.budget_used for event in rounds]
    assert used == sorted(set(used))


def test_a_stream_that_is_left_early_leaves_the_client_usable(client: Client) -> None:
    events = client.stream(QUESTION, budget=200)
    next(events)
    del events
    assert client.models()


def test_solve_many_gives_a_result_or_an_error_for_each(client: Client) -> None:
    first, bad, last = client.solve_many([QUESTION, " ", QUESTIONS[1]], budget=4, seed=3)
    assert isinstance(bad, ErrorResponse)
    assert bad.error.param == "question"
    for question, solved in ((QUESTION, first), (QUESTIONS[1], last)):
        assert isinstance(solved, SolveResponse)
        assert what_counts(solved) == what_counts(client.solve(question, budget=4, seed=3))


def test_diagnose_and_models_give_typed_responses(client: Client) -> None:
    models = client.models()
    assert [model.id for model in models] == ["counting", "texting"]
    found = client.diagnose(QUESTION, answer=7, budget=4, samplers=["gts", "dropout:0.1"], seed=1)
    assert [each.sampler for each in found.samplers] == ["gts", "dropout:0.1"]
    assert found.samplers[0].gains is not None
    assert client.diagnose(QUESTION, budget=4, model="texting").samplers[0].gains is None


def test_the_asynchronous_client_gives_the_same(server: RunningServer, client: Client) -> None:
    async def run() -> None:
        async with AsyncClient(server.url) as other:
            asked = (other.solve(QUESTION, budget=8, seed=seed) for seed in range(8))
            for seed, solved in enumerate(await asyncio.gather(*asked)):
                alone = client.solve(QUESTION, budget=8, seed=seed)
                assert what_counts(solved) == what_counts(alone)
            events = [event async for event in other.stream(QUESTION, budget=200, seed=3)]
            assert isinstance(events[-1], SolveResponse)
            assert await other.models() == client.models()
            many = await other.solve_many([QUESTION, " "], budget=2)
            assert [type(each) for each in many] == [SolveResponse, ErrorResponse]
            assert (await other.diagnose(QUESTION, budget=2, seed=1)).seed == 1

    asyncio.run(run())


@pytest.mark.parametrize(
    ("options", "status", "code", "param"),
    [
        ({"model": "nobody"}, 404, "model_not_found", "model"),
        ({"budget": 0}, 422, "invalid_field", "budget"),
        ({"sampler": "magic"}, 422, "invalid_field", "sampler"),
        ({"colour": "red"}, 422, "invalid_field", "colour"),
        ({"deadline_ms": 1, "budget": 200}, 504, "deadline", None),
    ],
)
def test_a_refusal_carries_status_code_and_field(
    client: Client, options: dict[str, object], status: int, code: str, param: str | None
) -> None:
    with pytest.raises(ClientError) as caught:
        client.solve(QUESTIONS[3], **options)  # type: ignore[arg-type]
    assert (caught.value.status, caught.value.code, caught.value.param) == (status, code, param)


def test_a_token_opens_the_server(narrow: RunningServer) -> None:
    for token in (None, "wrong"):
        with Client(narrow.url, token=token) as stranger, pytest.raises(ClientError) as caught:
            stranger.solve(QUESTION)
        assert (caught.value.status, caught.value.code) == (401, "unauthorized")
    with Client(narrow.url, token=TOKEN) as friend:
        assert friend.solve(QUESTION).answer is not None


def test_a_crowd_that_meets_429s_is_answered_and_equally(narrow: RunningServer) -> None:
    async def run() -> list[SolveResponse]:
        async with AsyncClient(narrow.url, token=TOKEN, retries=PATIENT) as crowd:
            asked = (crowd.solve(QUESTION, budget=32, seed=seed) for seed in range(6))
            return await asyncio.gather(*asked)

    before = narrow.metric("gts_rejected_total")
    together = asyncio.run(run())
    assert narrow.metric("gts_rejected_total") > before
    with Client(narrow.url, token=TOKEN) as client:
        for seed, solved in enumerate(together):
            alone = client.solve(QUESTION, budget=32, seed=seed)
            assert what_counts(solved) == what_counts(alone)


def test_a_restart_of_the_worker_is_waited_out(narrow: RunningServer) -> None:
    with Client(narrow.url, token=TOKEN, retries=PATIENT) as client:
        before = client.solve(QUESTION, budget=8, seed=3)
        narrow.kill_worker()
        assert what_counts(client.solve(QUESTION, budget=8, seed=3)) == what_counts(before)


def gts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str
) -> tuple[int, str, str]:
    """Run `gts` in this process, as its console script does."""
    monkeypatch.setattr(sys, "argv", ["gts", *words])
    with pytest.raises(SystemExit) as caught:
        main()
    out = capsys.readouterr()
    return int(caught.value.code or 0), out.out, out.err


def test_gts_solve_prints_the_same_from_a_server_as_from_a_folder(
    server: RunningServer,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ("solve", QUESTION, "-n", "8", "--seed", "3", "--trajectories")
    there, here = ("--url", server.url), ("--model", str(folder))
    read = SolveResponse.model_validate_json
    _, remote, _ = gts(monkeypatch, capsys, *words, *there, "--json")
    _, local, _ = gts(monkeypatch, capsys, *words, *here, "--json")
    assert what_counts(read(remote)) == what_counts(read(local))
    tables = [gts(monkeypatch, capsys, *words, *place)[1] for place in (there, here)]
    first, second = (table.split("counting")[0] for table in tables)
    assert first == second
    assert "█" in first
    _, other, _ = gts(monkeypatch, capsys, *words, *there, "--model", "texting", "--json")
    assert read(other).model == "texting"


def test_gts_solve_takes_its_token_from_the_environment(
    narrow: RunningServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("solve", QUESTION, "--url", narrow.url)
    assert "bearer token" in gts(monkeypatch, capsys, *words)[2]
    assert gts(monkeypatch, capsys, *words, "--token", TOKEN)[0] == 0
    monkeypatch.setenv("GTS_TOKEN", TOKEN)
    assert gts(monkeypatch, capsys, *words)[0] == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--url", "http://127.0.0.1:9"), "no answer from http://127.0.0.1:9"),
        (("--url", "nonsense"), "no address like http://"),
        (("--url", "{server}", "--device", "cpu"), "--device is the server's to choose"),
        (("--url", "{server}", "--dtype", "fp32"), "--dtype is the server's to choose"),
        (("--url", "{server}", "--threads", "1"), "--threads is the server's to choose"),
        (("--token", "x"), "--token goes with --url"),
        (("--url", "{server}", "--model", "nobody"), "no model 'nobody' is served"),
        (("--url", "{server}", "-n", "0"), "budget must be 1 to"),
        (("--url", "{server}", "--vote", "loudest"), "unknown vote"),
    ],
)
def test_a_question_that_cannot_be_asked_is_one_clear_line_and_exit_code_2(
    server: RunningServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    said: str,
) -> None:
    filled = (word.format(server=server.url) for word in words)
    code, out, err = gts(monkeypatch, capsys, "solve", "Q?", *filled)
    assert (code, out) == (2, "")
    assert said in err
    assert len(err.strip().splitlines()) == 1
    assert err.startswith("gts: ")
