"""Numbers of many questions to figures with intervals: bootstrap, reliability, spread. Numpy only."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "BINS",
    "RESAMPLES",
    "Bin",
    "Interval",
    "Reliability",
    "Spread",
    "bin_places",
    "interval",
    "intervals",
    "known_interval",
    "reliability",
    "spread",
]

RESAMPLES = 2000
_LEVELS = (2.5, 97.5)
_BLOCK = 2**22  # resampled questions held at a time
BINS = 10  # of equal width, each with its upper edge
_DECIMALS = 6

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """A mean over questions and its 95% percentile bootstrap interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Spread:
    """How a number is spread over questions."""

    mean: float
    p05: float
    p25: float
    p50: float
    p75: float
    p95: float


@dataclass(frozen=True)
class Bin:
    """The questions whose winner's share is in (low, high]; without any, the means are None."""

    low: float
    high: float
    count: int
    share: float | None
    accuracy: float | None


@dataclass(frozen=True)
class Reliability:
    """How well a share tells the chance of being right."""

    ece: float
    bins: list[Bin]


def intervals(columns: Floats, seed: int) -> list[Interval]:
    """Give mean and interval of each column of (questions, measures).

    The resamples depend on the seed and the number of questions alone, so figures are paired.
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


def interval(values: Sequence[float], seed: int) -> Interval:
    """Give mean and interval of one number for each question."""
    return intervals(np.asarray(values, dtype=np.float64)[:, None], seed)[0]


def known_interval(values: Floats, seed: int) -> Interval | None:
    """Give mean and interval over the questions that have the number (not NaN); None if none has."""
    known = values[~np.isnan(values)]
    return interval(known.tolist(), seed) if len(known) else None


def spread(values: Floats) -> list[Spread]:
    """Give the spread of each column of (questions, thoughts)."""
    levels = np.percentile(values, (5, 25, 50, 75, 95), axis=0)
    return [
        Spread(*(round(float(x), _DECIMALS) for x in each))
        for each in zip(values.mean(0), *levels, strict=True)
    ]


def bin_places(shares: Floats) -> NDArray[np.int64]:
    """Tell which bin each share falls into."""
    # Rounded, or a share of 0.7 could fall into the bin above its own.
    upper = np.ceil((shares * BINS).round(_DECIMALS)).astype(np.int64)
    return np.clip(upper - 1, 0, BINS - 1)


def reliability(shares: Floats, is_right: Floats) -> Reliability:
    """Bin shares, and compare each bin's mean share with its accuracy."""
    places = bin_places(shares)
    bins, error = [], 0.0
    for place in range(BINS):
        members = places == place
        count = int(members.sum())
        share = accuracy = None
        if count:
            share = round(float(shares[members].mean()), _DECIMALS)
            accuracy = round(float(is_right[members].mean()), _DECIMALS)
            error += count / len(shares) * abs(accuracy - share)
        bins.append(Bin(place / BINS, (place + 1) / BINS, count, share, accuracy))
    return Reliability(round(error, _DECIMALS), bins)
