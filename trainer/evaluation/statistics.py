"""Statistics over questions: bootstrap intervals, calibration error, percentiles. Numpy only."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "RESAMPLES",
    "Bin",
    "Floats",
    "Interval",
    "Reliability",
    "expected_calibration_error",
    "interval",
    "intervals",
    "reliability",
    "spread",
    "wilson_interval",
]

RESAMPLES = 2000
_LEVELS = (2.5, 97.5)
_PERCENTILES = (5, 25, 50, 75, 95)
_BLOCK = 2**22  # resampled questions in memory at a time
_BINS = 10  # of equal width; a bin includes its upper edge
_DECIMALS = 6

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """A mean over questions and its 95% percentile bootstrap interval."""

    value: float
    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        """Whether a difference with this interval is significant."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True)
class Bin:
    """Questions whose winner has a vote share in (low, high]; the means are None without questions."""

    low: float
    high: float
    count: int
    share: float | None
    accuracy: float | None


@dataclass(frozen=True)
class Reliability:
    """Expected calibration error of the vote share, and the bins of its reliability diagram."""

    ece: float
    bins: list[Bin]


def intervals(columns: Floats, seed: int) -> list[Interval]:
    """Bootstrap each column of (questions, measures).

    The resamples depend only on the seed and the number of questions, so columns are paired.
    """
    count = len(columns)
    generator = np.random.default_rng(seed)
    rows = max(1, _BLOCK // count)
    means = []
    for first in range(0, RESAMPLES, rows):
        size = min(rows, RESAMPLES - first)
        drawn = generator.integers(0, count, size=(size, count))
        drawn += np.arange(size)[:, None] * count
        times = np.bincount(drawn.ravel(), minlength=size * count).reshape(size, count)
        means.append(times @ columns / count)  # (size, measures)
    low, high = np.percentile(np.concatenate(means), _LEVELS, axis=0)
    return [
        Interval(*(round(float(x), _DECIMALS) for x in each))
        for each in zip(columns.mean(0), low, high, strict=True)
    ]


def interval(values: Floats, seed: int) -> Interval | None:
    """Bootstrap one number per question, (questions,); NaN is left out, None if all are NaN."""
    known = values[~np.isnan(values)]
    return intervals(known[:, None], seed)[0] if len(known) else None


def spread(values: Floats) -> list[dict[str, float]]:
    """Mean and percentiles of each column of (questions, thoughts)."""
    levels = np.percentile(values, _PERCENTILES, axis=0)
    names = ("mean", *(f"p{level:02d}" for level in _PERCENTILES))
    return [
        dict(zip(names, (round(float(x), _DECIMALS) for x in each), strict=True))
        for each in zip(values.mean(0), *levels, strict=True)
    ]


def reliability(shares: Floats, is_correct: Floats) -> Reliability:
    """Compare the mean share of each bin with its accuracy."""
    places = _bin_places(shares)
    bins, error = [], 0.0
    for place in range(_BINS):
        members = places == place
        count = int(members.sum())
        share = accuracy = None
        if count:
            share = round(float(shares[members].mean()), _DECIMALS)
            accuracy = round(float(is_correct[members].mean()), _DECIMALS)
            error += count / len(shares) * abs(accuracy - share)
        bins.append(Bin(place / _BINS, (place + 1) / _BINS, count, share, accuracy))
    return Reliability(round(error, _DECIMALS), bins)


def wilson_interval(share: float, count: int) -> tuple[float, float]:
    """Wilson's 95% interval of a share among `count` questions; it stays inside 0 and 1."""
    z = 1.96
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count**2)) / (1 + z * z / count)
    return middle - half, middle + half


def expected_calibration_error(probabilities: Floats, is_correct: Floats, weights: Floats) -> float:
    """Weighted mean over bins of |mean probability − accuracy|."""
    gaps = np.bincount(
        _bin_places(probabilities), weights * (probabilities - is_correct), minlength=_BINS
    )
    return float(np.abs(gaps).sum() / weights.sum())


def _bin_places(shares: Floats) -> NDArray[np.int64]:
    # Rounded, because 0.7 * 10 may be a little above 7, which is the upper edge of its bin.
    upper = np.ceil((shares * _BINS).round(_DECIMALS)).astype(np.int64)
    return np.clip(upper - 1, 0, _BINS - 1)
