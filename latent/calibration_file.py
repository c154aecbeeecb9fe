"""Reads and writes `calibration.json`; every field is checked. Needs no torch.

The file is not part of the reasoner's fingerprint; it names the fingerprint that it was fitted for.
"""

from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from latent.calibration import Calibration, Calibrations, Coefficients, calibrated_name
from latent.errors import FormatError, GtsError, MismatchError
from latent.familiarity import Reference
from latent.files import (
    checked_fields,
    checked_number,
    checked_type,
    read_json,
    user_place,
    write_json,
)
from latent.folders import DEFAULT_SAMPLER, sampler_digest, sampler_folders, weights_digest
from latent.specs import SamplerSpec
from latent.verifier_file import find_verifier
from latent.votes import parse_vote

__all__ = [
    "FILE_NAME",
    "calibration_path",
    "check_version",
    "load_calibrations",
    "misfit",
    "read_calibrations",
    "read_reference",
    "reference_json",
    "user_file",
    "verifier_digest",
    "write_calibrations",
]

FILE_NAME = "calibration.json"
_OF_VERIFIER = "verifier_fingerprint"  # a field that only calibrations of that vote have
FORMAT_VERSION = 2  # 1 had no reference: its confidence did not know unfamiliar questions


def user_file(name: str, key: str) -> Path:
    """The user's own calibration of what is installed."""
    place = user_place("calibrations", name, key)
    return place.with_name(f"{place.name}.json")


def calibration_path(folder: Path, key: str) -> Path:
    """The file to read: the user's own, if there is one, else that in the folder."""
    own = user_file(folder.name, key)
    return own if own.exists() else folder / FILE_NAME


def load_calibrations(folder: Path, reasoner_fingerprint: str) -> Calibrations:
    """Read the calibrations of a reasoner folder; refuse those of another reasoner or sampler.

    One of a verifier's vote is left out if the verifier is another one now, as after a training of the
    user's own: that vote then has its share as the confidence, and the other votes keep theirs.
    """
    path = calibration_path(folder, reasoner_fingerprint)
    if not path.exists():
        return Calibrations(reasoner_fingerprint)
    found = read_calibrations(path)
    problems = [problem for one in found.fitted if (problem := misfit(one, folder))]
    if found.reasoner_fingerprint != reasoner_fingerprint:
        problems = [
            f"reasoner_fingerprint {found.reasoner_fingerprint[:12]} is of another reasoner, this one "
            f"has {reasoner_fingerprint[:12]}"
        ]
    if problems:
        raise MismatchError(f"{path}: {problems[0]}; run gts calibrate again, or remove the file")
    if all(one.vote != "verifier" for one in found.fitted):
        return found
    own = verifier_digest(folder, reasoner_fingerprint)
    kept = (one for one in found.fitted if one.vote != "verifier" or _is_of(one, own))
    return replace(found, fitted=tuple(kept))


def verifier_digest(folder: Path, reasoner_fingerprint: str) -> str | None:
    """Hash of the weights of the reasoner's verifier; None if it has none."""
    place = find_verifier(folder, reasoner_fingerprint)
    return None if place is None else weights_digest(place)


def _is_of(calibration: Calibration, verifier: str | None) -> bool:
    return verifier is not None and calibration.verifier_fingerprint == verifier


def misfit(calibration: Calibration, folder: Path) -> str | None:
    """Why a calibration is not valid for the samplers in `folder`; None if it is valid."""
    spec = SamplerSpec.parse(calibration.sampler)
    if spec.kind != "gts":
        return None
    own = sampler_folders(folder).get(spec.name or DEFAULT_SAMPLER)
    if own is None:
        return f"sampler {calibration.sampler!r} is not in {folder / 'samplers'}"
    if sampler_digest(own, is_auto=spec.is_auto) != calibration.sampler_fingerprint:
        return f"sampler {calibration.sampler!r} has changed since it was calibrated"
    return None


def write_calibrations(path: Path, calibrations: Calibrations) -> None:
    """Write `calibration.json`, atomically."""
    data = asdict(calibrations) | {"reference": reference_json(calibrations.reference)}
    for row in data["fitted"]:
        if row[_OF_VERIFIER] is None:
            del row[_OF_VERIFIER]
    write_json(path, {"format": FORMAT_VERSION, **data})


def reference_json(reference: Reference | None) -> dict[str, Any] | None:
    """The reference as JSON: its pairs as the words that may follow each word."""
    if reference is None:
        return None
    following: dict[str, list[str]] = {}
    for pair in sorted(reference.pairs):
        word, _, other = pair.partition(" ")
        following.setdefault(word, []).append(other)
    return {
        "quantiles": " ".join(f"{each:g}" for each in reference.quantiles),
        "following": {word: " ".join(others) for word, others in following.items()},
    }


def read_reference(data: Any) -> Reference | None:
    """The reference in JSON; a ValueError names the wrong field."""
    if data is None:
        return None
    values = checked_fields(data, ("quantiles", "following"), "reference.")
    words = checked_type(values["quantiles"], str, "reference.quantiles").split()
    quantiles = [checked_number(float(word), "reference.quantiles") for word in words]
    if len(quantiles) < 2 or quantiles != sorted(quantiles):
        raise ValueError("reference.quantiles must be numbers that ascend")
    following = checked_type(values["following"], dict, "reference.following")
    pairs = (
        f"{word} {other}"
        for word, others in following.items()
        for other in checked_type(others, str, f"reference.following.{word}").split()
    )
    return Reference(frozenset(pairs), tuple(quantiles))


def check_version(data: Any) -> None:
    """Refuse a file of another format with a ValueError."""
    version = data.get("format") if isinstance(data, dict) else None
    if version != FORMAT_VERSION:
        raise ValueError(f"format {version!r} is not {FORMAT_VERSION}; run gts calibrate again")


def read_calibrations(path: Path) -> Calibrations:
    """Read `calibration.json`; errors name the field."""
    data = read_json(path)
    try:
        check_version(data)
        values = checked_fields(data, ("format", "reasoner_fingerprint", "fitted", "reference"), "")
        fingerprint = checked_type(values["reasoner_fingerprint"], str, "reasoner_fingerprint")
        rows = checked_type(values["fitted"], list, "fitted")
        fitted = tuple(_calibration(row, f"fitted[{n}].") for n, row in enumerate(rows))
        keys = [(one.sampler, one.vote) for one in fitted]
        if len(set(keys)) < len(keys):
            raise ValueError("fitted has the same sampler and vote twice")
        reference = read_reference(values["reference"])
    except (ValueError, GtsError) as error:
        raise FormatError(f"{path}: {error}") from error
    return Calibrations(fingerprint, fitted, reference)


def _calibration(data: Any, at: str) -> Calibration:
    is_verifiers = isinstance(data, dict) and data.get("vote") == "verifier"
    names = [field.name for field in fields(Calibration)]
    values = checked_fields(data, [n for n in names if is_verifiers or n != _OF_VERIFIER], at)
    if is_verifiers:
        checked_type(values[_OF_VERIFIER], str, at + _OF_VERIFIER)
    for name, kind in (("sampler", str), ("vote", str), ("data", str)):
        checked_type(values[name], kind, at + name)
    values["sampler"] = calibrated_name(SamplerSpec.parse(values["sampler"]))
    values["vote"] = parse_vote(values["vote"])
    if values["sampler_fingerprint"] is not None:
        checked_type(values["sampler_fingerprint"], str, f"{at}sampler_fingerprint")
    values["coefficients"] = _coefficients(values["coefficients"], f"{at}coefficients")
    budgets = checked_type(values["budgets"], list, f"{at}budgets")
    if [type(budget) for budget in budgets] != [int, int] or not 1 <= budgets[0] <= budgets[1]:
        raise ValueError(f"{at}budgets must be the smallest and the largest, as in [1, 64]")
    values["budgets"] = tuple(budgets)
    for name in ("ece", "ece_outside", "share_ece"):
        if name == "ece_outside" and values[name] is None:
            continue
        if not 0 <= checked_number(values[name], at + name) <= 1:
            raise ValueError(f"{at}{name} must be between 0 and 1")
    for name in ("questions", "seed"):
        checked_type(values[name], int, at + name)
    return Calibration(**values)


def _coefficients(data: Any, at: str) -> Coefficients:
    if isinstance(data, dict):  # older files do not have the last two
        data = {"likelihood": 0.0, "likelihood_novel": 0.0, **data}
    values = checked_fields(data, [field.name for field in fields(Coefficients)], f"{at}.")
    for name, value in values.items():
        if checked_number(value, f"{at}.{name}") < 0 and name in Coefficients.MONOTONE:
            raise ValueError(f"{at}.{name} must not be negative")
    return Coefficients(**values)
