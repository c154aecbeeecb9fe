"""Names how a sampler explores, from gain (SG) and shift (JS), by thresholds measured for each reasoner.

Fixed noise that grows stronger moves the answer's distribution further and further, but its gain rises
only up to some scale and then falls. So the thresholds of a reasoner come from its own fixed noise, on
validation data: how much it gains at best, and how far it may shift before the gain falls. They are in
`exploration.json` in the reasoner's folder, outside its fingerprint. Needs no torch.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from latent.errors import FormatError, InputError, MismatchError
from latent.files import checked_fields, checked_number, checked_type, read_json, write_json

__all__ = [
    "FILE_NAME",
    "FixedNoise",
    "Regime",
    "Thresholds",
    "load_thresholds",
    "measure_thresholds",
    "regime",
    "write_thresholds",
]

FILE_NAME = "exploration.json"
_FORMAT_VERSION = 1

Regime = Literal["under-exploration", "over-exploration", "useful"]


@dataclass(frozen=True)
class Thresholds:
    """Above `gain` a sampler is useful; else it shifts too little up to `shift`, and too much above."""

    gain: float = 1.1
    shift: float = 0.06


@dataclass(frozen=True)
class FixedNoise:
    """What dropout or Gaussian noise of one scale measured: SG with its 95% interval, and JS."""

    gain: float
    gain_low: float
    gain_high: float
    shift: float


def regime(gain: float | None, shift: float, thresholds: Thresholds | None = None) -> Regime | None:
    """Name how a sampler explores; None where the gain is unknown."""
    limits = thresholds or Thresholds()
    if gain is None:
        return None
    if gain > limits.gain:
        return "useful"
    return "under-exploration" if shift <= limits.shift else "over-exploration"


def measure_thresholds(measured: Sequence[FixedNoise]) -> Thresholds:
    """Choose the thresholds of a reasoner from the fixed noise of several scales.

    gain: the upper end of the best one's interval, so that the best scale alone does not exceed it.
    shift: the largest of those that gain as much as the best, within its interval.
    """
    if len(measured) < 2:
        raise InputError("thresholds need dropout or Gaussian noise of at least two scales")
    best = max(measured, key=lambda each: each.gain)
    shift = max(each.shift for each in measured if each.gain >= best.gain_low)
    return Thresholds(best.gain_high, shift)


def write_thresholds(path: Path, thresholds: Thresholds, fingerprint: str, data: str) -> None:
    """Write `exploration.json`, atomically; `data` says what was measured on."""
    own = {"format": _FORMAT_VERSION, "reasoner_fingerprint": fingerprint, "data": data}
    write_json(path, {**own, **asdict(thresholds)})


def load_thresholds(folder: Path, fingerprint: str) -> Thresholds:
    """Read the thresholds in a reasoner's folder; the general ones if it has none."""
    path = folder / FILE_NAME
    if not path.exists():
        return Thresholds()
    names = ("format", "reasoner_fingerprint", "data", "gain", "shift")
    try:
        values = checked_fields(read_json(path), names, "")
        if values["format"] != _FORMAT_VERSION:
            raise ValueError(f"format {values['format']!r} is not {_FORMAT_VERSION}")
        found = checked_type(values["reasoner_fingerprint"], str, "reasoner_fingerprint")
        limits = [float(checked_number(values[name], name)) for name in ("gain", "shift")]
    except ValueError as error:
        raise FormatError(f"{path}: {error}") from error
    if found != fingerprint:
        raise MismatchError(f"{path}: it was measured for another reasoner; remove the file")
    return Thresholds(*limits)
