"""Raises the time limit of requests, so that a slow machine does not look like a server error."""

from typing import Any

import schemathesis

ENOUGH_MS = 10_000


@schemathesis.hook
def before_call(
    context: schemathesis.HookContext, case: schemathesis.Case, kwargs: dict[str, Any]
) -> None:
    """Lengthen a short deadline: schemathesis likes 1 ms, and a 504 is then the right answer."""
    deadline_ms = case.body.get("deadline_ms") if isinstance(case.body, dict) else None
    if type(deadline_ms) is int and 1 <= deadline_ms < ENOUGH_MS:
        case.body = {**case.body, "deadline_ms": ENOUGH_MS}
