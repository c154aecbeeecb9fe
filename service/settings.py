"""The settings of the service: names, defaults, limits and help texts of all flags of `gts serve`.

A plain model, not one that reads the environment: `cli/serve.py` makes the flags and the environment
variables from it, and a Ray replica must not pick up variables of its node.
"""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from latent.errors import InputError
from latent.zoo import SERVED_MODELS

_ORIGIN = re.compile(r"https?://[^/?#\s]+")

_COMPILE_FACTOR = 10.0  # compiling takes longer than all other loading

__all__ = ["Settings", "read_settings", "read_tokens"]


class Settings(BaseModel):
    """The field `max_budget` is --max-budget and GTS_MAX_BUDGET; a plural, `models`, is --model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    models: tuple[str, ...] = Field(
        SERVED_MODELS,
        min_length=1,
        description="An embedded reasoner or panel, or a folder; repeat it for several.",
    )
    panels: tuple[str, ...] = Field(
        (),
        description="NAME=MODEL:SAMPLER,MODEL:SAMPLER: serve these models together under NAME.",
    )
    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on.")
    devices: tuple[str, ...] = Field(
        ("auto",), min_length=1, description="auto, cpu, cuda or cuda:1; one worker for each."
    )
    dtype: str = Field(
        "auto",
        description="auto (int8 on a CPU, fp32 there for small decoders, bf16 on CUDA), fp32, bf16, "
        "fp16, fp64, or int8 on a CPU.",
    )
    threads: int = Field(
        max((os.cpu_count() or 2) - 1, 1),
        ge=1,
        description="CPU threads of a worker; by default the cores less one.",
    )
    lane_limit: int = Field(256, ge=16, le=65536, description="Most lanes in a round.")
    round_seconds: float = Field(
        0.75, gt=0, le=60, description="Seconds that a round should take at most."
    )
    compile: bool = Field(
        False,
        description="Compile the decoder's steps before the port opens (CUDA graphs on a GPU). It takes "
        "minutes; --start-seconds counts tenfold.",
    )
    start_seconds: float = Field(
        600.0, gt=0, description="Seconds after which a worker that is still loading is replaced."
    )
    spare_workers: Literal["auto", "0", "1"] = Field(
        "auto",
        description="1: a second, loaded worker for each device takes over when one is lost. "
        "auto: 1 on a CPU, 0 on a GPU. More than 1 is not offered.",
    )
    hang_seconds: float = Field(
        300.0, gt=0, description="Seconds after which a worker stuck in a round is replaced."
    )
    waiting_lanes: int = Field(
        8192, ge=1, description="Lanes that may wait before requests get a 429."
    )
    max_budget: int = Field(256, ge=1, description="Largest budget.")
    max_question_chars: int = Field(20_000, ge=1, description="Longest question.")
    max_questions: int = Field(64, ge=1, description="Longest list of questions.")
    max_body_bytes: int = Field(2**20, ge=1024, description="Largest request body.")
    max_samplers: int = Field(8, ge=1, description="Most samplers in a /diagnose.")
    prefix_cache_mib: int = Field(256, ge=0, description="Memory for prefilled questions.")
    drain_seconds: float = Field(
        30.0, ge=0, description="Seconds that open requests get after SIGTERM."
    )
    heartbeat_seconds: float = Field(15.0, gt=0, description="Longest silence of a stream.")
    token_file: Path | None = Field(
        None,
        description="Bearer tokens, one a line; probes, /metrics and the pages (/, /docs) need none.",
    )
    cors_origins: tuple[str, ...] = Field(
        (),
        description="Let pages of this origin (https://example.org, or * for all) call the API from "
        "a browser; repeat it for several. Off by default.",
    )
    protect_metrics: bool = Field(False, description="Ask for a token on /metrics too.")
    log_format: Literal["auto", "json", "text"] = Field(
        "auto", description="json, text or auto: text at a terminal."
    )
    log_questions: bool = Field(False, description="Put questions into the log.")

    @property
    def has_spares(self) -> bool | None:
        """Whether devices have a spare worker; None: those that are CPUs."""
        return None if self.spare_workers == "auto" else self.spare_workers == "1"

    @property
    def load_seconds(self) -> float:
        """Seconds after which a worker that is still loading is replaced, compiling included."""
        return self.start_seconds * (_COMPILE_FACTOR if self.compile else 1.0)

    @model_validator(mode="after")
    def _limits_fit(self) -> Self:
        if self.max_budget > self.waiting_lanes:
            raise ValueError(
                f"max_budget {self.max_budget} is more than waiting_lanes {self.waiting_lanes}: "
                "such a request would be refused whenever another waits"
            )
        if self.compile and self.dtype == "int8":
            raise ValueError("compile and dtype int8 do not go together: int8 is not compiled")
        if self.protect_metrics and self.token_file is None:
            raise ValueError("protect_metrics needs tokens; give a token file")
        for origin in self.cors_origins:
            if origin != "*" and not _ORIGIN.fullmatch(origin):
                raise ValueError(
                    f"{origin!r} is no origin: write https://example.org, with no path, or *"
                )
        return self


def read_settings(given: Mapping[str, Any], name_of: Callable[[str], str] = str) -> Settings:
    """Check settings; an error is one line that begins with what `name_of` calls the field."""
    try:
        return Settings(**given)
    except ValidationError as error:
        first = error.errors()[0]
        name = name_of(str(first["loc"][0])) if first["loc"] else "settings"
        # Without its cause, since Ray prints every cause.
        raise InputError(f"{name}: {first['msg'].removeprefix('Value error, ')}") from None


def read_tokens(path: Path | None) -> tuple[str, ...]:
    """Read bearer tokens, one a line; a line that begins with # is a comment."""
    if path is None:
        return ()
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"the token file {path} cannot be read: {error}", param="token_file"
        ) from error
    tokens = []
    for number, line in enumerate(map(str.strip, lines), start=1):
        if not line or line.startswith("#"):
            continue
        if len(line.split()) > 1:  # no client could send it
            raise InputError(
                f"the token file {path}, line {number}: a token has no spaces in it; "
                "a comment has a line of its own",
                param="token_file",
            )
        tokens.append(line)
    if not tokens:
        raise InputError(f"the token file {path} holds no token", param="token_file")
    return tuple(tokens)
