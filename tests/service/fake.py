"""A server that follows a script, behind httpx's own fake transport."""

import json
from typing import Any

import httpx

from service.api.schemas import SolveResponse
from service.errors import ServiceError

SOLVED = SolveResponse.model_validate(
    {
        "id": "req-1",
        "model": "m",
        "sampler": "gts",
        "seed": 1,
        "budget": 1,
        "budget_used": 1,
        "stop_reason": "budget",
        "partial": False,
        "answer": "7",
        "confidence": 1.0,
        "confidence_kind": "share",
        "vote": "majority",
        "candidates": [],
        "usage": {"prompt_tokens": 1, "thoughts": 1, "answer_tokens": 1, "trajectories": 1},
        "timing_ms": {"queue": 0, "prefill": 0, "thoughts": 0, "decode": 0, "total": 0},
        # Line ends to some readers, but not to JSON or server-sent events.
        "trajectories": [
            {"index": 0, "text": "\u2028#\x85 7", "answer": "7", "logprob": 0, "confidence": 1}
        ],
    }
)

Answer = httpx.Response | Exception


class Script:
    """A server that gives these answers in turn, the last one for ever, and keeps what it was asked."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = list(answers)
        self.bodies: list[dict[str, Any]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.bodies.append(json.loads(request.content))
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)


def good() -> httpx.Response:
    return httpx.Response(200, content=SOLVED.model_dump_json())


def refused(error: ServiceError) -> httpx.Response:
    return httpx.Response(error.status, json=error.body(), headers=error.headers())
