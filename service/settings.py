"""One settings object, built once at start, that refuses nonsense before the port opens."""

import os
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from latent.errors import InputError
from latent.zoo import DEFAULT_MODEL

__all__ = ["Settings", "read_tokens"]


class Settings(BaseModel):
    """Every flag of `gts serve`; each is also an environment variable, GTS_ and its name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    models: tuple[str, ...] = Field((DEFAULT_MODEL,), min_length=1)
    host: str = "127.0.0.1"
    port: int = Field(8000, ge=0, le=65535)
    devices: tuple[str, ...] = Field(("auto",), min_length=1)
    dtype: str = "auto"
    threads: int = Field(max((os.cpu_count() or 2) - 1, 1), ge=1)
    lane_limit: int = Field(256, ge=16, le=65536)
    round_seconds: float = Field(0.5, gt=0, le=60)
    hang_seconds: float = Field(300.0, gt=0)
    waiting_lanes: int = Field(8192, ge=1)
    max_budget: int = Field(256, ge=1)
    max_question_chars: int = Field(20_000, ge=1)
    max_questions: int = Field(64, ge=1)
    max_body_bytes: int = Field(2**20, ge=1024)
    max_samplers: int = Field(8, ge=1)
    prefix_cache_mib: int = Field(256, ge=0)
    drain_seconds: float = Field(30.0, ge=0)
    heartbeat_seconds: float = Field(15.0, gt=0)
    tokens: tuple[str, ...] = ()
    protect_metrics: bool = False
    log_format: Literal["auto", "json", "text"] = "auto"
    log_questions: bool = False

    @model_validator(mode="after")
    def _limits_fit(self) -> Self:
        if self.max_budget > self.waiting_lanes:
            raise ValueError(
                f"max_budget {self.max_budget} is more than waiting_lanes {self.waiting_lanes}: "
                "such a request would be refused whenever another waits"
            )
        if self.protect_metrics and not self.tokens:
            raise ValueError("protect_metrics needs tokens; give a token file")
        return self


def read_tokens(path: Path | None) -> tuple[str, ...]:
    """Read bearer tokens, one a line; a line that begins with # is a comment."""
    if path is None:
        return ()
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"the token file {path} cannot be read: {error}", param="tokens"
        ) from error
    tokens = []
    for number, line in enumerate(map(str.strip, lines), start=1):
        if not line or line.startswith("#"):
            continue
        if len(line.split()) > 1:  # no client could send it
            raise InputError(
                f"the token file {path}, line {number}: a token has no spaces in it; "
                "a comment has a line of its own",
                param="tokens",
            )
        tokens.append(line)
    if not tokens:
        raise InputError(f"the token file {path} holds no token", param="tokens")
    return tuple(tokens)
