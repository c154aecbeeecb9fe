"""Reads an evaluation's files, summary.json and results.jsonl, into typed records. Computes nothing."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from latent.errors import FormatError, MismatchError, NotFoundError, SpecError
from latent.files import read_json
from latent.specs import SamplerSpec
from trainer.evaluation.report.findings import (
    Bin,
    Calibration,
    Interval,
    Malformed,
    ModelFacts,
    Paired,
    Run,
    SamplerResult,
    Seeds,
    Series,
)

__all__ = ["SUMMARY_VERSION", "read_run", "read_snr", "read_summary"]

SUMMARY_VERSION = 1
_CONFIG_NEEDED = ("model", "data", "samplers", "budget", "seed", "gain_budget")


def read_run(folder: Path) -> Run:
    """Read the summary in an evaluation's folder."""
    if not folder.is_dir():
        raise NotFoundError(f"{folder} is no folder; give one that gts evaluate wrote")
    if not (folder / "summary.json").is_file():
        raise NotFoundError(
            f"{folder} has no summary.json; gts evaluate writes one when it has finished"
        )
    return read_summary(folder / "summary.json")


def read_summary(path: Path) -> Run:
    """Read a summary, or say what is wrong with it."""
    data = read_json(path)
    version = data.get("version") if isinstance(data, dict) else None
    if version is None:
        raise FormatError(f"{path} is not a summary of gts evaluate: it has no version")
    if version != SUMMARY_VERSION:
        raise MismatchError(
            f"{path} is of version {version}, and this program reads {SUMMARY_VERSION}; "
            "run gts evaluate again"
        )
    try:
        return _run(data)
    except KeyError as error:
        raise FormatError(f"{path} lacks the field {error}") from error
    except (TypeError, ValueError, AttributeError, SpecError) as error:
        raise FormatError(f"{path} has a field of a wrong kind: {error}") from error


def read_snr(results: Path) -> dict[str, list[list[float]]]:
    """Give every learned sampler's SNR, a list per thought for each question, from results.jsonl."""
    found: dict[str, list[list[float]]] = {}
    if not results.exists():
        return found
    with results.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                record = json.loads(line)
                snr = record["snr"]
                if snr is not None and _kind(record["sampler"]) == "gts":
                    found.setdefault(record["sampler"], []).append([float(x) for x in snr])
            except (KeyError, TypeError, ValueError, SpecError) as error:
                raise FormatError(f"{results}, line {number} is no result: {error}") from error
    return found


def _run(data: Mapping[str, Any]) -> Run:
    return Run(
        config={**data["config"], **{name: data["config"][name] for name in _CONFIG_NEEDED}},
        model=ModelFacts(
            name=str(data["model"]["name"]),
            kind=str(data["model"]["kind"]),
            fingerprint=str(data["model"]["fingerprint"]),
            thoughts=int(data["model"]["thoughts"]),
            width=int(data["model"]["width"]),
            parameters=int(data["model"]["parameters"]),
        ),
        data_name=str(data["data"]["name"]),
        rows=int(data["data"]["rows"]),
        malformed=tuple(
            Malformed(line=row["line"], reason=row["reason"]) for row in data["data"]["malformed"]
        ),
        accuracy=_interval(data["deterministic"]["accuracy"]),
        accuracy_by_operations=_series(data["deterministic"]["by_operations"]),
        samplers=tuple(
            _sampler(spec, data["samplers"][spec]) for spec in data["config"]["samplers"]
        ),
        paired=_paired(data["paired"]),
        seeds=tuple(
            Seeds(
                samplers=tuple(str(spec) for spec in one["samplers"]),
                measures={name: _interval(found) for name, found in one["measures"].items()},
                paired=_paired(one["paired"]),
            )
            for one in data.get("seeds", ())
        ),
        seconds=float(data["seconds"]),
    )


def _sampler(spec: str, data: Mapping[str, Any]) -> SamplerResult:
    if _kind(spec) and not (data["pass_at"] and data["unique"]):
        raise ValueError(f"sampler {spec} has an empty pass_at or unique")
    return SamplerResult(
        spec=spec,
        pass_at=_series(data["pass_at"]),
        unique=_series(data["unique"]),
        votes={vote: _series(series) for vote, series in data["votes"].items()},
        gain=_optional(_interval, data["gain"]),
        gain_whole=_optional(_interval, data.get("gain_whole")),
        gain_rate=_optional(_interval, data["gain_rate"]),
        js=_optional(_interval, data["js"]),
        regime=_optional(str, data["regime"]),
        calibration={
            vote: _calibration(measured) for vote, measured in (data["calibration"] or {}).items()
        },
        tokens=int(data["tokens"]),
        trajectories=int(data["trajectories"]),
        seconds=float(data["seconds"]),
    )


def _calibration(data: Mapping[str, Any]) -> Calibration:
    return Calibration(
        ece=float(data["ece"]),
        bins=tuple(
            Bin(
                low=float(one["low"]),
                high=float(one["high"]),
                count=int(one["count"]),
                share=float(one["share"] or 0.0),
                accuracy=float(one["accuracy"] or 0.0),
            )
            for one in data["bins"]
        ),
    )


def _series(data: Mapping[str, Any]) -> Series:
    return {int(key): _interval(data[key]) for key in sorted(data, key=int)}


def _interval(data: Mapping[str, Any]) -> Interval:
    return Interval(float(data["value"]), float(data["low"]), float(data["high"]))


def _paired(rows: Sequence[Mapping[str, Any]]) -> tuple[Paired, ...]:
    return tuple(
        Paired(
            row["sampler"],
            row["against"],
            row["measure"],
            Interval(float(row["difference"]), float(row["low"]), float(row["high"])),
        )
        for row in rows
    )


_T = TypeVar("_T")


def _optional(read: Callable[[Any], _T], data: Any) -> _T | None:
    return None if data is None else read(data)


def _kind(spec: str) -> str:
    return SamplerSpec.parse(spec).kind
