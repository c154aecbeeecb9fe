"""How long a round of one group takes, learned from its rounds: seconds = overhead + lanes · slope."""

import math
from dataclasses import dataclass

__all__ = ["Speed"]

_DECAY = 0.8  # of what earlier rounds said, with each new one
_MIN_SPREAD = 0.2  # of the sizes around their mean, below which a slope cannot be told


@dataclass
class Speed:
    """Weighted least squares over the rounds of a group, the latest counting most.

    While all rounds have had about the same size, or the fit makes no sense (rounds of other prompts),
    time is taken as proportional to lanes.
    """

    _weight: float = 0.0
    _lanes: float = 0.0
    _seconds: float = 0.0
    _lanes_squared: float = 0.0
    _product: float = 0.0

    def learn(self, lanes: int, seconds: float) -> None:
        """Take in a finished round."""
        self._weight = _DECAY * self._weight + 1.0
        self._lanes = _DECAY * self._lanes + lanes
        self._seconds = _DECAY * self._seconds + seconds
        self._lanes_squared = _DECAY * self._lanes_squared + lanes * lanes
        self._product = _DECAY * self._product + lanes * seconds

    @property
    def per_lane(self) -> float:
        """Seconds for each lane, overhead and all, in rounds as they have been."""
        return self._seconds / self._lanes

    def seconds(self, lanes: int) -> float:
        """Estimate how long a round of so many lanes takes."""
        overhead, slope = self._fit()
        return overhead + slope * lanes

    def lanes(self, seconds: float) -> float:
        """Estimate how many lanes a round of so many seconds has; may be below 0."""
        overhead, slope = self._fit()
        return (seconds - overhead) / slope

    def knee(self, share: float, block: int) -> float:
        """Lanes at which a round reaches this share of the greatest lanes per second.

        Infinite while overhead and slope cannot be told apart; in whole blocks.
        """
        overhead, slope = self._fit()
        if overhead == 0.0:
            return math.inf
        return math.ceil(share / (1.0 - share) * overhead / slope / block) * block

    def _fit(self) -> tuple[float, float]:
        """Overhead and slope, neither below zero."""
        mean, mean_seconds = self._lanes / self._weight, self._seconds / self._weight
        variance = self._lanes_squared / self._weight - mean * mean
        if variance > (_MIN_SPREAD * mean) ** 2:
            slope = (self._product / self._weight - mean * mean_seconds) / variance
            overhead = mean_seconds - slope * mean
            if slope > 0.0 and overhead >= 0.0:
                return overhead, slope
        return 0.0, max(self.per_lane, 1e-9)
