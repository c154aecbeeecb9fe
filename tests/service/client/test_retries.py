"""When the clients try again, and when not: on a fake transport, no server."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from service.api.schemas import SolveResponse
from service.client import AsyncClient, Client, ClientError, Retries
from service.errors import NotReadyError, OverloadedError, ServiceError
from tests.service.fake import SOLVED, Answer, Script, good, refused

Solve = Callable[..., SolveResponse]
QUICK = Retries(tries=4, seconds=5.0, first_wait=0.01)


@pytest.fixture(params=["sync", "async"])
def solve(request: pytest.FixtureRequest) -> Solve:
    """Ask a script through either client."""

    def sync(script: Script, retries: Retries = QUICK, **options: Any) -> SolveResponse:
        transport = httpx.MockTransport(script)
        with Client("http://fake", retries=retries, transport=transport) as client:
            return client.solve("Q?", **options)

    def through_asyncio(script: Script, retries: Retries = QUICK, **options: Any) -> SolveResponse:
        async def run() -> SolveResponse:
            transport = httpx.MockTransport(script)
            async with AsyncClient("http://fake", retries=retries, transport=transport) as client:
                return await client.solve("Q?", **options)

        return asyncio.run(run())

    return sync if request.param == "sync" else through_asyncio


@pytest.mark.parametrize(
    "failure",
    [
        refused(OverloadedError("full")),
        refused(NotReadyError("starting")),
        httpx.Response(503, text="<html>a proxy's own words</html>"),
        httpx.ConnectError("refused"),
        httpx.ConnectTimeout("slow"),
        httpx.ReadError("reset"),
        httpx.RemoteProtocolError("closed"),
    ],
    ids=["429", "503", "proxy", "connect", "connect-timeout", "read", "closed"],
)
def test_what_may_pass_is_tried_again_with_the_same_seed(solve: Solve, failure: Answer) -> None:
    script = Script(failure, failure, good())
    assert solve(script) == SOLVED
    first, *others = script.bodies
    assert others == [first, first]
    assert 0 <= first["seed"] < 2**32


def test_every_call_draws_its_own_seed_unless_it_has_one(solve: Solve) -> None:
    script = Script(good())
    for _ in range(3):
        solve(script)
    assert len({body["seed"] for body in script.bodies}) == 3
    solve(script, seed=5, model=None)
    assert script.bodies[-1] == {"question": "Q?", "seed": 5, "model": None}


@pytest.mark.parametrize("status", [400, 401, 404, 413, 422, 500, 504])
def test_what_would_fail_again_is_raised_at_once(solve: Solve, status: int) -> None:
    script = Script(refused(ServiceError("no", status=status, code="why", param="field")))
    with pytest.raises(ClientError, match=r"^no$") as caught:
        solve(script)
    assert (caught.value.status, caught.value.code, caught.value.param) == (status, "why", "field")
    assert len(script.bodies) == 1


def test_an_answer_that_took_too_long_is_not_asked_for_again(solve: Solve) -> None:
    script = Script(httpx.ReadTimeout("slow"))
    with pytest.raises(ClientError, match="no answer from http://fake: it took too long") as caught:
        solve(script)
    assert (caught.value.status, caught.value.code) == (None, "timeout")
    assert len(script.bodies) == 1


def test_tries_are_bounded_in_number(solve: Solve) -> None:
    script = Script(refused(NotReadyError("starting")))
    with pytest.raises(ClientError, match="starting") as caught:
        solve(script)
    assert (caught.value.status, caught.value.code) == (503, "not_ready")
    assert len(script.bodies) == QUICK.tries


def test_tries_are_bounded_in_time(solve: Solve) -> None:
    script = Script(refused(OverloadedError("full", retry_after=6)))
    with pytest.raises(ClientError, match="full") as caught:
        solve(script)
    assert caught.value.retry_after == 6
    assert len(script.bodies) == 1


def test_the_servers_retry_after_is_waited_for(solve: Solve) -> None:
    script = Script(refused(OverloadedError("full", retry_after=1)), good())
    started = time.monotonic()
    solve(script)
    assert time.monotonic() - started >= 1


def test_waits_double_and_are_never_shorter_than_asked() -> None:
    retries = Retries(tries=6, seconds=60.0, first_wait=1.0)
    for tried in range(1, 6):
        wait = retries.wait(tried, 0.0, None)
        assert wait is not None
        assert 2 ** (tried - 2) <= wait <= 2 ** (tried - 1)
    assert retries.wait(1, 0.0, 30.0) == 30.0
    assert retries.wait(1, 31.0, 30.0) is None
    assert retries.wait(6, 0.0, None) is None


@pytest.mark.parametrize(("status", "said"), [(200, "does not answer as a gts"), (502, "502 Bad")])
def test_an_answer_of_another_server_is_one_clear_line(
    solve: Solve, status: int, said: str
) -> None:
    with pytest.raises(ClientError, match=said) as caught:
        solve(Script(httpx.Response(status, text="<html>hello</html>")))
    assert caught.value.code == "bad_response"
    assert "\n" not in str(caught.value)
