"""Errors that a user can correct.

GtsError                 the root; its text is one line that is shown to the user
├── InputError           a question, budget, seed or option that makes no sense
│   └── SpecError        a malformed sampler spec, or one that the reasoner can't run
├── NotFoundError        no such reasoner, sampler, folder or file
├── FormatError          a file that is truncated, corrupt, or not what its name says
│   └── MismatchError    a sound file for something else: another reasoner, other sizes
└── UnsupportedError     a decoder that the lanes cannot serve
"""

import signal

__all__ = [
    "FormatError",
    "GtsError",
    "InputError",
    "MismatchError",
    "NotFoundError",
    "SpecError",
    "UnsupportedError",
    "exit_reason",
]


_MESSAGE_LIMIT = 1000  # characters: what a damaged file holds may be quoted in it


class GtsError(Exception):
    """Base of all errors that a user can correct; the message is one bounded line that says how."""

    param: str | None = None

    def __init__(self, message: str, *, param: str | None = None) -> None:
        line = " ".join(message.splitlines())
        super().__init__(line if len(line) <= _MESSAGE_LIMIT else f"{line[:_MESSAGE_LIMIT]} …")
        self.param = param


class InputError(GtsError):
    """A question, budget, seed or option that makes no sense."""


class SpecError(InputError):
    """A malformed sampler spec, or one that this reasoner can't run."""


class NotFoundError(GtsError):
    """No such reasoner, sampler, folder or file."""


class FormatError(GtsError):
    """A file that is truncated, corrupt, or not what its name says."""


class MismatchError(FormatError):
    """A sound file for something else: another reasoner, other sizes."""


class UnsupportedError(GtsError):
    """A decoder that the lanes cannot serve."""


def exit_reason(code: int | None) -> str:
    """How a process ended, from its exit code: `killed by SIGKILL` or `exit code 1`."""
    if code is None or code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:  # a real-time signal has no name
        return f"killed by signal {-code}"
