"""What the clients send, and how they read what comes back. No I/O, no torch."""

import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Literal, TypedDict, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from latent.votes import VoteKind
from service.api.schemas import CandidateOut, SolveResponse
from service.client.retries import ClientError
from service.errors import ErrorBody, ErrorResponse

__all__ = [
    "LIST_MODELS",
    "Call",
    "DiagnoseOptions",
    "Events",
    "Peer",
    "RoundEvent",
    "SolveOptions",
    "StopOption",
    "ask",
]

_TRANSIENT_STATUSES = frozenset({429, 503})
_TRANSIENT_LOSSES = (httpx.NetworkError, httpx.RemoteProtocolError, httpx.ConnectTimeout)
_CONNECT_SECONDS = 10.0

Shape = TypeVar("Shape", bound=BaseModel)


class StopOption(TypedDict):
    """An adaptive budget: stop once the leader is this certain to beat the runner-up."""

    certainty: float


class SolveOptions(TypedDict, total=False):
    """What /solve takes besides the question. What is left out or None is the server's to choose."""

    budget: int
    sampler: str | None
    vote: VoteKind
    model: str | None
    seed: int | None
    stop: StopOption | None
    include_deterministic: bool
    deadline_ms: int | None
    include: list[Literal["trajectories"]]


class DiagnoseOptions(TypedDict, total=False):
    """What /diagnose takes besides the question; `answer` is the true one."""

    answer: str | float | None
    samplers: list[str] | None
    budget: int
    seed: int | None
    model: str | None


class RoundEvent(BaseModel):
    """The candidates after one more round of a streamed question."""

    id: str
    budget_used: int
    candidates: list[CandidateOut]


@dataclass(frozen=True)
class Call:
    """One request, the same on every try."""

    method: str
    path: str
    content: bytes | None = None
    is_streamed: bool = False

    def request(self) -> dict[str, Any]:
        """Give what httpx builds a request from."""
        headers = {} if self.content is None else {"Content-Type": "application/json"}
        return {
            "method": self.method,
            "url": self.path,
            "content": self.content,
            "headers": headers,
        }


LIST_MODELS = Call("GET", "/v1/models")


def ask(
    path: str,
    question: str | list[str],
    options: SolveOptions | DiagnoseOptions,
    *,
    is_streamed: bool = False,
) -> Call:
    """Make a call about a question; without a seed it draws one, so that every try is the same."""
    body: dict[str, Any] = {"question": question, **options}
    if body.get("seed") is None:
        body["seed"] = secrets.randbelow(2**32)
    if is_streamed:
        body["stream"] = True
    # Escaped to ASCII: any string can be sent, and the server says what is wrong with it.
    return Call("POST", path, json.dumps(body).encode(), is_streamed)


class Peer:
    """The server as a client sees it: its address and token, and how its answers read."""

    def __init__(self, url: str, token: str | None, timeout_seconds: float) -> None:
        try:
            place = httpx.URL(url)
            place.host.encode("idna")
        except (httpx.InvalidURL, UnicodeError):
            place = httpx.URL("")
        if place.scheme not in ("http", "https") or not place.host:
            message = f"{url!r} is no address like http://127.0.0.1:8000"
            raise ClientError(message, code="bad_url", param="url")
        if token is not None and not (token.isascii() and token.isprintable()):
            message = "a token is one line of plain ASCII"
            raise ClientError(message, code="bad_token", param="token")
        self._name = f"{place.scheme}://{place.netloc.decode()}"  # never a password
        self.options: dict[str, Any] = {
            "base_url": place,
            "headers": {} if token is None else {"Authorization": f"Bearer {token}"},
            "timeout": httpx.Timeout(
                timeout_seconds, connect=min(timeout_seconds, _CONNECT_SECONDS)
            ),
        }

    def read(self, shape: type[Shape], text: bytes) -> Shape:
        """Read a body, or say that this is no gts server."""
        try:
            return shape.model_validate_json(text)
        except ValidationError as error:
            message = f"{self._name} does not answer as a gts server does"
            raise ClientError(message, code="bad_response") from error

    def refusal(self, response: httpx.Response) -> ClientError:
        """Turn an answer that is not a 2xx into the error to raise."""
        try:
            said = ErrorResponse.model_validate_json(response.content).error
        except ValidationError:  # not from gts: a proxy in between, or another server
            message = f"{self._name} answered {response.status_code} {response.reason_phrase}"
            said = ErrorBody(type="", message=message, param=None, code="bad_response")
        return ClientError(
            said.message,
            code=said.code,
            status=response.status_code,
            param=said.param,
            retry_after=_seconds_of(response.headers.get("Retry-After")),
            is_transient=response.status_code in _TRANSIENT_STATUSES,
        )

    def loss(self, error: httpx.RequestError) -> ClientError:
        """Turn a lost connection into the error to raise."""
        is_timeout = isinstance(error, httpx.TimeoutException)
        why = "it took too long" if is_timeout else str(error) or type(error).__name__
        lost = ClientError(
            f"no answer from {self._name}: {why}",
            code="timeout" if is_timeout else "unreachable",
            is_transient=isinstance(error, _TRANSIENT_LOSSES),
        )
        lost.__cause__ = error
        return lost


@dataclass
class Events:
    """Reads the server-sent events of one streamed question, in whatever pieces they come."""

    peer: Peer
    _rest: bytes = b""
    _name: str = ""
    _has_result: bool = False

    def feed(self, piece: bytes) -> Iterator[RoundEvent | SolveResponse]:
        """Give the events that this piece completes; raise the one that is an error."""
        # Not httpx's lines: those end at U+2028 and its kin too, which JSON strings may hold.
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            field, _, value = line.rstrip(b"\r").partition(b": ")
            if field == b"event":
                self._name = value.decode(errors="replace")
            elif field == b"data":
                yield self._event(value)

    def finish(self) -> None:
        """Raise if the stream ended before its result."""
        if not self._has_result:
            message = "the server broke the stream off before its result"
            raise ClientError(message, code="unreachable")

    def _event(self, data: bytes) -> RoundEvent | SolveResponse:
        if self._name == "error":
            said = self.peer.read(ErrorResponse, data).error
            raise ClientError(said.message, code=said.code, param=said.param)
        if self._name == "round":
            return self.peer.read(RoundEvent, data)
        self._has_result = True
        return self.peer.read(SolveResponse, data)


def _seconds_of(retry_after: str | None) -> float | None:
    """Read Retry-After: seconds from a gts server, perhaps a date from a proxy."""
    if retry_after is None:
        return None
    if retry_after.isascii() and retry_after.isdigit():
        return float(retry_after)
    try:
        date = parsedate_to_datetime(retry_after)
    except ValueError:
        return None
    if date.tzinfo is None:
        return None
    return max(0.0, (date - datetime.now(UTC)).total_seconds())
