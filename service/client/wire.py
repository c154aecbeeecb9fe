"""What the clients send, how they read answers, and when they try again. No I/O, no torch."""

import json
import random
import secrets
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Literal, TypedDict, TypeVar

import httpx
from httpx_sse import ServerSentEvent, SSEError
from pydantic import BaseModel, ValidationError

from latent.errors import GtsError
from latent.votes import VoteKind
from service.api.schemas import RoundEvent, SolveResponse
from service.errors import ErrorBody, ErrorResponse

__all__ = [
    "LIST_MODELS",
    "Call",
    "ClientError",
    "DiagnoseOptions",
    "Peer",
    "Retries",
    "Shape",
    "SolveOptions",
    "StopOption",
    "Tries",
    "ask",
    "cut_short",
]

_TRANSIENT_STATUSES = frozenset({429, 503})
_TRANSIENT_LOSSES = (httpx.NetworkError, httpx.RemoteProtocolError, httpx.ConnectTimeout)
_CONNECT_SECONDS = 10.0

Shape = TypeVar("Shape", bound=BaseModel)


class ClientError(GtsError):
    """The server's error, or why there is no answer.

    `status` is None if no answer came, or the error came inside a stream. `code` is the server's, or
    `bad_url`, `bad_token`, `unreachable`, `timeout` or `bad_response`.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str,
        status: int | None = None,
        param: str | None = None,
        retry_after: float | None = None,
        is_transient: bool = False,
    ) -> None:
        super().__init__(message, param=param)
        self.status, self.code = status, code
        self.retry_after, self.is_transient = retry_after, is_transient


@dataclass(frozen=True)
class Retries:
    """How often a call is tried, and how long after its first try another may begin."""

    tries: int = 8
    seconds: float = 60.0
    first_wait: float = 0.2

    def wait(self, tried: int, elapsed: float, retry_after: float | None) -> float | None:
        """Seconds to wait after so many tries, no less than the server asks; None to give up."""
        backoff = self.first_wait * 2 ** (tried - 1) * random.uniform(0.5, 1.0)
        wait = max(backoff, retry_after or 0.0)
        return None if tried >= self.tries or elapsed + wait > self.seconds else wait


@dataclass
class Tries:
    """The tries of one call so far."""

    retries: Retries
    _tried: int = 0
    _started: float = field(default_factory=time.monotonic)

    def wait_after(self, failure: ClientError) -> float:
        """Seconds to wait before the next try; raises the failure if there is none."""
        self._tried += 1
        elapsed = time.monotonic() - self._started
        wait = self.retries.wait(self._tried, elapsed, failure.retry_after)
        if wait is None or not failure.is_transient:
            raise failure
        return wait


class StopOption(TypedDict, total=False):
    """An adaptive budget: what ends it early. Give one of the two."""

    certainty: float
    confidence: float


class SolveOptions(TypedDict, total=False):
    """What /solve takes besides the question; the server chooses what is left out or None."""

    budget: int
    sampler: str | None
    vote: VoteKind | None
    model: str | list[str] | None
    seed: int | None
    stop: StopOption | None
    abstain_below: float | None
    include_deterministic: bool
    deadline_ms: int | None
    include: list[Literal["trajectories", "tokens", "paths", "readings"]]


class DiagnoseOptions(TypedDict, total=False):
    """What /diagnose takes besides the question; `answer` is the true one."""

    answer: str | float | None
    samplers: list[str] | None
    budget: int
    seed: int | None
    model: str | list[str] | None


@dataclass(frozen=True)
class Call:
    """One request, the same on every try."""

    method: str
    path: str
    content: bytes | None = None
    is_streamed: bool = False

    def request(self) -> dict[str, Any]:
        """The arguments of `httpx.Client.build_request`."""
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
    """Make a call about a question. Draws the seed if there is none, so that every try is the same."""
    body: dict[str, Any] = {"question": question, **options}
    if body.get("seed") is None:
        body["seed"] = secrets.randbelow(2**32)
    if is_streamed:
        body["stream"] = True
    # Escaped to ASCII, so that any string can be sent; the server checks it.
    return Call("POST", path, json.dumps(body).encode(), is_streamed)


class Peer:
    """The server of a client: its address and token, and the reading of its answers."""

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

    def read(self, shape: type[Shape], text: bytes | str) -> Shape:
        """Parse a body; raise if this is no gts server."""
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
        if isinstance(error, SSEError):
            return ClientError(f"{self._name} does not stream: {error}", code="bad_response")
        is_timeout = isinstance(error, httpx.TimeoutException)
        why = "it took too long" if is_timeout else str(error) or type(error).__name__
        lost = ClientError(
            f"no answer from {self._name}: {why}",
            code="timeout" if is_timeout else "unreachable",
            is_transient=isinstance(error, _TRANSIENT_LOSSES),
        )
        lost.__cause__ = error
        return lost

    def event(self, event: ServerSentEvent) -> RoundEvent | SolveResponse:
        """Parse an event of a stream; raise the one that is an error."""
        if event.event == "error":
            said = self.read(ErrorResponse, event.data).error
            raise ClientError(said.message, code=said.code, param=said.param)
        if event.event == "round":
            return self.read(RoundEvent, event.data)
        return self.read(SolveResponse, event.data)


def cut_short() -> ClientError:
    """The error of a stream that ends before its result."""
    return ClientError("the server broke the stream off before its result", code="unreachable")


def _seconds_of(retry_after: str | None) -> float | None:
    """Parse Retry-After: seconds from a gts server, perhaps a date from a proxy."""
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
