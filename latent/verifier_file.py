"""Where a reasoner's verifier is, and its card `verifier.json`. Needs no torch.

A verifier is a folder with `verifier.safetensors` and `verifier.json`: `verifiers/default` in the folder
of its reasoner, or the user's own of a reasoner that is installed with the package.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from latent.errors import FormatError, MismatchError
from latent.files import checked_fields, checked_type, read_json, user_place

__all__ = [
    "CARD_NAME",
    "VerifierCard",
    "VerifierShape",
    "find_verifier",
    "folder_verifier",
    "read_verifier_card",
    "user_verifier",
]

CARD_NAME = "verifier.json"
_LARGEST = 2**16
_SHAPE = ("width", "thoughts", "answer_tokens", "hidden")


@dataclass(frozen=True)
class VerifierShape:
    """What the weights of a verifier are made for."""

    width: int  # D of the reasoner's states
    thoughts: int  # K of the reasoner
    answer_tokens: int  # A, the first tokens of a text whose states are read
    hidden: int  # units of a layer


@dataclass(frozen=True)
class VerifierCard:
    """`verifier.json`: the reasoner that a verifier is for, how it was trained, what it reached."""

    shape: VerifierShape
    reasoner_fingerprint: str
    training: dict[str, Any] = field(default_factory=dict)
    results: dict[str, Any] = field(default_factory=dict)


def folder_verifier(folder: Path) -> Path:
    """The place of the verifier in a reasoner's folder."""
    return folder / "verifiers" / "default"


def user_verifier(name: str, fingerprint: str) -> Path:
    """The place of the user's own verifier of what is installed, by its reasoner's fingerprint."""
    return user_place("verifiers", name, fingerprint)


def find_verifier(folder: Path, fingerprint: str) -> Path | None:
    """The verifier of the reasoner in `folder`: the user's own, else the folder's; None without one.

    Refuses one that was trained for other weights.
    """
    places = (user_verifier(folder.name, fingerprint), folder_verifier(folder))
    found = next((place for place in places if (place / CARD_NAME).is_file()), None)
    if found is None:
        return None
    trained_for = read_verifier_card(found).reasoner_fingerprint
    if trained_for != fingerprint:
        raise MismatchError(
            f"the verifier in {found} was trained for another reasoner (fingerprint "
            f"{trained_for[:12]}, {folder.name} has {fingerprint[:12]}); remove it",
            param="vote",
        )
    return found


def read_verifier_card(folder: Path) -> VerifierCard:
    """Read `verifier.json`."""
    path = folder / CARD_NAME
    names = ("format", "shape", "reasoner_fingerprint", "training", "results")
    data = read_json(path)
    try:
        values = checked_fields(data, names, "")
        if values["format"] != 1:
            raise ValueError(f"format {values['format']!r} is unknown")
        shape = checked_fields(values["shape"], _SHAPE, "shape.")
        for name in _SHAPE:
            if not 1 <= checked_type(shape[name], int, f"shape.{name}") <= _LARGEST:
                raise ValueError(f"shape.{name} must be 1 to {_LARGEST}")
        return VerifierCard(
            VerifierShape(**shape),
            checked_type(values["reasoner_fingerprint"], str, "reasoner_fingerprint"),
            checked_type(values["training"], dict, "training"),
            checked_type(values["results"], dict, "results"),
        )
    except ValueError as error:
        raise FormatError(f"{path} is not a verifier's card: {error}") from error
