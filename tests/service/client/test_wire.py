"""How the clients read addresses, headers and events, in whatever shape they come."""

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpx
import pytest

from service.api.schemas import SolveResponse
from service.client import Client, ClientError, Retries, RoundEvent
from service.client.wire import Peer
from service.errors import NotReadyError
from tests.service.fake import SOLVED, Script, refused

QUICK = Retries(tries=4, seconds=5.0, first_wait=0.01)


def test_retry_after_is_seconds_or_a_date() -> None:
    def seconds(header: str) -> float | None:
        response = httpx.Response(429, headers={"Retry-After": header})
        return Peer("http://fake", None, 1.0).refusal(response).retry_after

    def date(hours: int) -> str:
        return format_datetime(datetime.now(UTC) + timedelta(hours=hours), usegmt=True)

    assert seconds("17") == 17
    assert seconds(date(-1)) == 0
    assert seconds(date(+1)) == pytest.approx(3600, abs=100)


@pytest.mark.parametrize("header", ["soon", "-3", "1.5", "²", ""])
def test_a_retry_after_that_makes_no_sense_is_ignored(header: str) -> None:
    response = httpx.Response(429, headers=[(b"Retry-After", header.encode())])
    assert Peer("http://fake", None, 1.0).refusal(response).retry_after is None


@pytest.mark.parametrize(
    "url", ["", "nonsense", "ftp://x", "http://", "http://[::1", f"http://{'a' * 99}"]
)
def test_a_bad_address_is_refused_before_anything_is_sent(url: str) -> None:
    with pytest.raises(ClientError, match="no address like http") as caught:
        Client(url)
    assert caught.value.param == "url"


def test_errors_show_neither_token_nor_password() -> None:
    with pytest.raises(ClientError) as caught:
        Client("http://fake", token="secret\n")
    assert "secret" not in str(caught.value)
    lost = Peer("http://me:secret@fake:1", "secret", 1.0).loss(httpx.ConnectError("refused"))
    assert str(lost) == "no answer from http://fake:1: refused"


ROUND = 'event: round\ndata: {"id": "req-1", "budget_used": 1, "candidates": []}\n\n'
RESULT = f"event: result\ndata: {SOLVED.model_dump_json()}\n\n"
ERROR = f"event: error\ndata: {json.dumps(NotReadyError('gone').body())}\n\n"


def streamed(content: bytes | Iterator[bytes], kind: str = "text/event-stream") -> Client:
    """A client whose server answers with this stream."""
    answer = httpx.Response(200, content=content, headers={"Content-Type": kind})
    return Client("http://fake", retries=QUICK, transport=httpx.MockTransport(lambda _: answer))


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_events_are_read_in_whatever_pieces_they_come(size: int, ends: str) -> None:
    text = f": still thinking\n\n{ROUND}: still thinking\n\n{RESULT}".replace("\n", ends).encode()
    assert "\u2028".encode() in text, "no line end, though some readers take it for one"
    pieces = (text[start : start + size] for start in range(0, len(text), size))
    with streamed(pieces) as client:
        read = list(client.stream("Q?"))
    assert read == [RoundEvent(id="req-1", budget_used=1, candidates=[]), SOLVED]


def test_an_answer_that_is_no_stream_is_one_clear_line() -> None:
    with streamed(b"<html>", "text/html") as client, pytest.raises(ClientError) as caught:
        list(client.stream("Q?"))
    assert caught.value.code == "bad_response"
    assert "\n" not in str(caught.value)


def cut_short() -> Iterator[bytes]:
    yield ROUND.encode()
    raise httpx.ReadError("reset")


@pytest.mark.parametrize(
    ("content", "said", "code"),
    [
        (ROUND.encode(), "before its result", "unreachable"),
        (cut_short(), "reset", "unreachable"),
        ((ROUND + ERROR).encode(), "gone", "not_ready"),
    ],
    ids=["end", "reset", "error"],
)
def test_a_stream_without_a_result_ends_in_an_error(
    content: bytes | Iterator[bytes], said: str, code: str
) -> None:
    with streamed(content) as client:
        events = client.stream("Q?")
        assert isinstance(next(events), RoundEvent)
        with pytest.raises(ClientError, match=said) as caught:
            next(events)
    assert caught.value.code == code


def test_a_stream_is_tried_again_before_it_begins() -> None:
    headers = {"Content-Type": "text/event-stream"}
    good = httpx.Response(200, text=ROUND + RESULT, headers=headers)
    answers = [refused(NotReadyError("starting")), good]
    transport = httpx.MockTransport(Script(*answers))
    with Client("http://fake", retries=QUICK, transport=transport) as client:
        assert [type(event) for event in client.stream("Q?")] == [RoundEvent, SolveResponse]


def test_the_client_imports_neither_torch_nor_the_server() -> None:
    code = (
        "import sys, service.client\n"
        "print({'torch', 'fastapi', 'uvicorn', 'service.engine.engine'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
