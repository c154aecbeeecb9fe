"""How long a round of one group takes, learned from its rounds: seconds = overhead + lanes · slope."""

from dataclasses import dataclass

__all__ = ["Speed"]

_DECAY = 0.8  # of what earlier rounds said, with each new one
_MIN_SPREAD = 0.1  # of the sizes around their mean, below which a slope cannot be told


@dataclass
class Speed:
    """Weighted least squares over the rounds of a group, the latest counting most.

    Until rounds of unequal sizes have told overhead and slope apart, time is taken as proportional to
    lanes. Later rounds of one size, or whose fit makes no sense (rounds of other prompts), change the
    time but not the ratio of the two.
    """

    _weight: float = 0.0
    _lanes: float = 0.0
    _seconds: float = 0.0
    _lanes_squared: float = 0.0
    _product: float = 0.0
    _ratio: float = 0.0  # overhead / slope: the lanes that take as long as the overhead

    def learn(self, lanes: int, seconds: float) -> None:
        """Take in a finished round."""
        self._weight = _DECAY * self._weight + 1.0
        self._lanes = _DECAY * self._lanes + lanes
        self._seconds = _DECAY * self._seconds + seconds
        self._lanes_squared = _DECAY * self._lanes_squared + lanes * lanes
        self._product = _DECAY * self._product + lanes * seconds
        if self.is_sure:
            slope = (self._product - self._lanes * self._seconds / self._weight) / (
                self._variance * self._weight
            )
            overhead = (self._seconds - slope * self._lanes) / self._weight
            if slope > 0.0 and overhead >= 0.0:
                self._ratio = overhead / slope

    @property
    def mean_lanes(self) -> float:
        """Lanes of a round, as they have been."""
        return self._lanes / self._weight

    @property
    def is_sure(self) -> bool:
        """Whether the latest rounds differed enough in size to tell overhead and slope apart."""
        return self._variance > (_MIN_SPREAD * self.mean_lanes) ** 2

    @property
    def per_lane(self) -> float:
        """Seconds for each lane, overhead and all, in rounds as they have been."""
        return self._seconds / self._lanes

    def seconds(self, lanes: int) -> float:
        """Estimate how long a round of so many lanes takes."""
        return (self._ratio + lanes) * self._slope

    def lanes(self, seconds: float) -> float:
        """Estimate how many lanes a round of so many seconds has; may be below 0."""
        return seconds / self._slope - self._ratio

    def knee(self, share: float) -> float:
        """Lanes at which a round has this share of the greatest lanes per second; 0 if unknown."""
        return share / (1.0 - share) * self._ratio

    @property
    def _variance(self) -> float:
        """Of the lanes of a round."""
        return self._lanes_squared / self._weight - self.mean_lanes**2

    @property
    def _slope(self) -> float:
        """Seconds that each lane adds to a round."""
        return max(self._seconds / (self._lanes + self._ratio * self._weight), 1e-9)
