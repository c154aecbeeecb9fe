"""The error that the clients raise, and when a call that failed with it is tried again."""

import random
import time
from dataclasses import dataclass, field

from latent.errors import GtsError

__all__ = ["ClientError", "Retries", "Tries"]


class ClientError(GtsError):
    """What the server answered instead of a result, or why there is no answer.

    `status` is None where no answer came, or an error inside a stream. `code` is the server's, or
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
        """Say how long to wait after so many tries, no less than the server asks; None: give up."""
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
        """Say how long to wait before the next try, or raise the failure."""
        self._tried += 1
        elapsed = time.monotonic() - self._started
        wait = self.retries.wait(self._tried, elapsed, failure.retry_after)
        if wait is None or not failure.is_transient:
            raise failure
        return wait
