"""Reads `panel.json`, and reads and writes a panel's `calibration.json`. Needs no torch.

A panel folder holds `panel.json` and perhaps `calibration.json`; its reasoners are folders of their
own, named in `panel.json` as embedded reasoners or by a path from the panel's folder.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from latent.calibration_file import FORMAT_VERSION as CALIBRATION_VERSION
from latent.calibration_file import (
    calibration_path,
    check_version,
    read_reference,
    reference_json,
)
from latent.errors import FormatError, GtsError, InputError, MismatchError
from latent.familiarity import Reference
from latent.files import checked_fields, checked_number, checked_type, read_json, write_json
from latent.folders import read_format, sampler_digest
from latent.panel import SPLITS, Member, Panel
from latent.panel_calibration import MemberWeights, PanelCalibration
from latent.specs import SamplerSpec
from latent.votes import parse_vote
from latent.zoo import embedded_models, resolve_model, resolve_sampler

__all__ = [
    "PanelFiles",
    "calibrated_panel",
    "member_digests",
    "panel_key",
    "parse_panel",
    "read_panel",
    "write_panel_calibrations",
]

FORMAT_VERSION = 1
_MAX_MEMBERS = 16


@dataclass(frozen=True)
class PanelFiles:
    """A panel, the folders of its members' reasoners in order, and its own if it has one."""

    panel: Panel
    reasoners: tuple[Path, ...]
    folder: Path | None = None


def read_panel(folder: Path) -> PanelFiles:
    """Read `panel.json`; errors name the field."""
    path = folder / "panel.json"
    data = read_json(path)
    try:
        values = checked_fields(data, ("format", "members", "split", "sure"), "")
        if values["format"] != FORMAT_VERSION:
            raise ValueError(f"format {values['format']!r} is not {FORMAT_VERSION}")
        if values["split"] not in SPLITS:
            raise ValueError(f"split must be one of {', '.join(SPLITS)}")
        if not 0.5 < checked_number(values["sure"], "sure") < 1:
            raise ValueError("sure must be a probability above 0.5 and below 1")
        rows = checked_type(values["members"], list, "members")
        found = [_member(row, f"members[{n}].", folder) for n, row in enumerate(rows)]
        return _files(
            folder.resolve().name, found, folder, split=values["split"], sure=values["sure"]
        )
    except (ValueError, GtsError) as error:
        raise FormatError(f"{path}: {error}", param="model") from error


def parse_panel(name: str, members: Sequence[str]) -> PanelFiles:
    """A panel of members written as MODEL or MODEL:SAMPLER, with equal shares and no calibration."""
    found = []
    for text in members:
        model, _, sampler = text.strip().partition(":")
        if not model:
            raise InputError(
                f"panel {name!r}: {text!r} names no model; write coconut-tiny or coconut-tiny:gts",
                param="panel",
            )
        found.append(_placed(resolve_model(model), sampler or None, 1.0))
    return _files(name, found, None)


def _files(
    name: str, found: Sequence[tuple[Member, Path]], folder: Path | None, **more: Any
) -> PanelFiles:
    if len(found) > _MAX_MEMBERS:
        raise InputError(
            f"panel {name!r} has {len(found)} members; at most {_MAX_MEMBERS}", param="model"
        )
    panel = Panel(name, tuple(member for member, _ in found), **more)
    return PanelFiles(panel, tuple(path for _, path in found), folder)


def _member(data: Any, at: str, folder: Path) -> tuple[Member, Path]:
    values = checked_fields(data, ("model", "sampler", "share"), at)
    model = checked_type(values["model"], str, f"{at}model")
    sampler = checked_type(values["sampler"], str, f"{at}sampler")
    share = checked_number(values["share"], f"{at}share")
    if not 0 < share < math.inf:
        raise ValueError(f"{at}share must be above 0")
    place = model if model in embedded_models() else str(folder / model)
    return _placed(resolve_model(place), sampler, float(share))


def _placed(reasoner: Path, sampler: str | None, share: float) -> tuple[Member, Path]:
    reasoner = reasoner.resolve()
    format = read_format(reasoner)
    spec = SamplerSpec.parse(sampler or format.default_sampler)
    if "/" in (spec.name or ""):
        raise InputError(
            f"{spec}: a panel names samplers of its reasoners, no paths", param="panel"
        )
    format.check_sampler(spec, reasoner.name)
    resolve_sampler(reasoner, spec)  # one that is missing is named now
    return Member(reasoner.name, spec, share), reasoner


def _member_digest(member: Member, reasoner: Path, fingerprint: str) -> str:
    """Hash the reasoner and the sampler that a calibration is for."""
    own = resolve_sampler(reasoner, member.sampler)
    weights = "" if own is None else sampler_digest(own, is_auto=member.sampler.is_auto)
    return hashlib.sha256(f"{member.label} {fingerprint} {weights}".encode()).hexdigest()


def calibrated_panel(files: PanelFiles, fingerprints: Sequence[str]) -> Panel:
    """The panel with the calibrations in its folder; refuses those of other reasoners or samplers.

    `fingerprints` are those of the members' reasoners, in order.
    """
    panel = files.panel
    if files.folder is None:
        return panel
    own = member_digests(files, fingerprints)
    path = calibration_path(files.folder, panel_key(own))
    if not path.exists():
        return panel
    digests, fitted, reference = _read_calibrations(path)
    if list(digests) != list(own):
        problem = f"it is for {', '.join(digests)}, and the panel has {', '.join(own)}"
    elif changed := [label for label, digest in own.items() if digests[label] != digest]:
        problem = f"{changed[0]} has changed since it was calibrated"
    else:
        return replace(panel, calibrations=fitted, reference=reference)
    raise MismatchError(f"{path}: {problem}; run gts calibrate again, or remove the file")


def member_digests(files: PanelFiles, fingerprints: Sequence[str]) -> dict[str, str]:
    """What a calibration is valid for: a hash of each member's weights, by its label."""
    return {
        member.label: _member_digest(member, reasoner, fingerprint)
        for member, reasoner, fingerprint in zip(
            files.panel.members, files.reasoners, fingerprints, strict=True
        )
    }


def panel_key(digests: Mapping[str, str]) -> str:
    """One hash of all members."""
    return hashlib.sha256("\n".join(digests.values()).encode()).hexdigest()


def write_panel_calibrations(
    path: Path,
    digests: Mapping[str, str],
    fitted: Sequence[PanelCalibration],
    reference: Reference | None,
) -> None:
    """Write a panel's `calibration.json`, atomically; `digests` are by member."""
    data = {
        "format": CALIBRATION_VERSION,
        "members": dict(digests),
        "fitted": [asdict(one) for one in fitted],
        "reference": reference_json(reference),
    }
    write_json(path, data)


def _read_calibrations(
    path: Path,
) -> tuple[dict[str, str], tuple[PanelCalibration, ...], Reference | None]:
    data = read_json(path)
    try:
        check_version(data)
        values = checked_fields(data, ("format", "members", "fitted", "reference"), "")
        digests = checked_type(values["members"], dict, "members")
        rows = checked_type(values["fitted"], list, "fitted")
        fitted = tuple(
            _calibration(row, f"fitted[{n}].", len(digests)) for n, row in enumerate(rows)
        )
        if len({one.vote for one in fitted}) < len(fitted):
            raise ValueError("fitted has the same vote twice")
        reference = read_reference(values["reference"])
    except (ValueError, GtsError) as error:
        raise FormatError(f"{path}: {error}") from error
    return digests, fitted, reference


def _calibration(data: Any, at: str, members: int) -> PanelCalibration:
    # A file that was written before there was a ceiling has none.
    data = {"ceiling": 1.0, **data} if isinstance(data, dict) else data
    values = checked_fields(data, [field.name for field in fields(PanelCalibration)], at)
    values["vote"] = parse_vote(checked_type(values["vote"], str, f"{at}vote"))
    rows = checked_type(values["weights"], list, f"{at}weights")
    if len(rows) != members:
        raise ValueError(f"{at}weights must have one entry for each of the {members} members")
    values["weights"] = tuple(_weights(row, f"{at}weights[{n}].") for n, row in enumerate(rows))
    budgets = checked_type(values["budgets"], list, f"{at}budgets")
    if [type(budget) for budget in budgets] != [int, int] or not 1 <= budgets[0] <= budgets[1]:
        raise ValueError(f"{at}budgets must be the smallest and the largest, as in [2, 64]")
    values["budgets"] = tuple(budgets)
    for name in ("none", "novel", "ceiling", "ece", "ece_outside", "share_ece"):
        if name != "ece_outside" or values[name] is not None:
            checked_number(values[name], at + name)
    if values["novel"] < 0:
        raise ValueError(f"{at}novel must not be negative")
    if not 0 < values["ceiling"] <= 1:
        raise ValueError(f"{at}ceiling must be above 0 and at most 1")
    for name in ("questions", "seed"):
        checked_type(values[name], int, at + name)
    checked_type(values["data"], str, f"{at}data")
    return PanelCalibration(**values)


def _weights(data: Any, at: str) -> MemberWeights:
    data = {"likelihood": 0.0, **data} if isinstance(data, dict) else data  # older files have none
    values = checked_fields(data, [field.name for field in fields(MemberWeights)], at)
    for name, value in values.items():
        if checked_number(value, at + name) < 0 and name in MemberWeights.MONOTONE:
            raise ValueError(f"{at}{name} must not be negative")
    return MemberWeights(**values)
