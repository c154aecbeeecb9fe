"""Reads and writes `calibration.json`; every field is checked. Needs no torch.

The file is not part of the reasoner's fingerprint; it names the fingerprint that it was fitted for.
"""

from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from latent.calibration import Calibration, Calibrations, Coefficients, calibrated_name
from latent.errors import FormatError, GtsError, MismatchError
from latent.files import checked_fields, checked_number, checked_type, read_json, write_json
from latent.folders import DEFAULT_SAMPLER, sampler_folders, weights_digest
from latent.specs import SamplerSpec
from latent.votes import parse_vote

__all__ = [
    "FILE_NAME",
    "load_calibrations",
    "misfit",
    "read_calibrations",
    "write_calibrations",
]

FILE_NAME = "calibration.json"
FORMAT_VERSION = 1


def load_calibrations(folder: Path, reasoner_fingerprint: str) -> Calibrations:
    """Read the calibrations of a reasoner folder; refuse those of another reasoner or sampler."""
    path = folder / FILE_NAME
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
    return found


def misfit(calibration: Calibration, folder: Path) -> str | None:
    """Why a calibration is not valid for the samplers in `folder`; None if it is valid."""
    spec = SamplerSpec.parse(calibration.sampler)
    if spec.kind != "gts":
        return None
    own = sampler_folders(folder).get(spec.name or DEFAULT_SAMPLER)
    if own is None:
        return f"sampler {calibration.sampler!r} is not in {folder / 'samplers'}"
    if weights_digest(own) != calibration.sampler_fingerprint:
        return f"sampler {calibration.sampler!r} has changed since it was calibrated"
    return None


def write_calibrations(path: Path, calibrations: Calibrations) -> None:
    """Write `calibration.json`, atomically."""
    write_json(path, {"format": FORMAT_VERSION, **asdict(calibrations)})


def read_calibrations(path: Path) -> Calibrations:
    """Read `calibration.json`; errors name the field."""
    data = read_json(path)
    try:
        values = checked_fields(data, ("format", "reasoner_fingerprint", "fitted"), "")
        if values["format"] != FORMAT_VERSION:
            raise ValueError(f"format {values['format']!r} is not {FORMAT_VERSION}")
        fingerprint = checked_type(values["reasoner_fingerprint"], str, "reasoner_fingerprint")
        rows = checked_type(values["fitted"], list, "fitted")
        fitted = tuple(_calibration(row, f"fitted[{n}].") for n, row in enumerate(rows))
        keys = [(one.sampler, one.vote) for one in fitted]
        if len(set(keys)) < len(keys):
            raise ValueError("fitted has the same sampler and vote twice")
    except (ValueError, GtsError) as error:
        raise FormatError(f"{path}: {error}") from error
    return Calibrations(fingerprint, fitted)


def _calibration(data: Any, at: str) -> Calibration:
    values = checked_fields(data, [field.name for field in fields(Calibration)], at)
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
    for name in ("ece", "share_ece"):
        if not 0 <= checked_number(values[name], at + name) <= 1:
            raise ValueError(f"{at}{name} must be between 0 and 1")
    for name in ("questions", "seed"):
        checked_type(values[name], int, at + name)
    return Calibration(**values)


def _coefficients(data: Any, at: str) -> Coefficients:
    values = checked_fields(data, [field.name for field in fields(Coefficients)], f"{at}.")
    for name, value in values.items():
        if checked_number(value, f"{at}.{name}") < 0 and name in Coefficients.MONOTONE:
            raise ValueError(f"{at}.{name} must not be negative")
    return Coefficients(**values)
