"""When to draw no more trajectories than the votes so far. Needs no torch."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from latent.calibration import Calibration, confidence_of
from latent.errors import InputError
from latent.familiarity import Familiarity
from latent.votes import Tally, VoteKind, certainty_of

__all__ = ["Stop", "check_stop", "checkpoints"]

_FIRST_CHECKPOINT = 4


@dataclass(frozen=True)
class Stop:
    """A level that ends an adaptive budget.

    `certainty` is that the leader stays ahead, which needs no calibration; `confidence` is the
    calibrated probability that its answer is right.
    """

    kind: Literal["certainty", "confidence"]
    level: float

    def __post_init__(self) -> None:
        least = 0.5 if self.kind == "certainty" else 0.0  # a leader has a certainty of ½ at least
        if not least < self.level < 1:
            raise InputError(
                f"stop.{self.kind} must be above {least:g} and below 1, got {self.level}",
                param="stop",
            )

    @classmethod
    def parse(cls, text: str) -> "Stop":
        """Parse certainty:0.95 or confidence:0.9."""
        kind, _, level = text.partition(":")
        try:
            if kind == "certainty":
                return cls("certainty", float(level))
            if kind == "confidence":
                return cls("confidence", float(level))
        except ValueError:
            pass
        raise InputError(
            f"stop {text!r} must be like certainty:0.95 or confidence:0.9", param="stop"
        )

    def is_reached(
        self, voted: Tally, calibration: Calibration | None, familiarity: Familiarity | None
    ) -> bool:
        """Whether these votes suffice."""
        if self.kind == "certainty":
            return certainty_of(voted.candidates) >= self.level
        return confidence_of(voted, calibration, familiarity).value >= self.level


def check_stop(
    what: str,
    vote: VoteKind,
    stop: Stop | None,
    abstain_below: float | None,
    *,
    is_calibrated: bool,
) -> None:
    """Refuse a stop or an abstention that this vote, or a lack of calibration, does not allow."""
    if stop is not None and stop.kind == "certainty" and vote != "majority":
        raise InputError(f"stop.certainty goes with the majority vote, not {vote}", param="stop")
    if abstain_below is not None and not 0 < abstain_below < 1:
        raise InputError(
            f"abstain_below must be above 0 and below 1, got {abstain_below}", param="abstain_below"
        )
    if is_calibrated:
        return
    reason = (
        f"needs a calibrated confidence, and {what} with vote {vote} has none; run gts calibrate"
    )
    if abstain_below is not None:
        raise InputError(f"abstain_below {reason}", param="abstain_below")
    if stop is not None and stop.kind == "confidence":
        raise InputError(f"stop.confidence {reason}", param="stop")


def checkpoints(budget: int) -> Iterator[int]:
    """Numbers of trajectories after which a stop is looked at: 4, 8, 16 … below the budget."""
    count = _FIRST_CHECKPOINT
    while count < budget:
        yield count
        count *= 2
