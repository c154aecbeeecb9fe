"""How much a question is like those that a calibration was fitted on, by its words. Needs no torch.

By the share of its pairs of neighbouring words that none of those questions has. On the embedded
reasoners this separates their own task from others better than the distance between prompt states
does (docs/samplers.md), and it is known before anything is computed.
"""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

__all__ = ["UNFAMILIAR", "UNFAMILIAR_BELOW", "Familiarity", "Reference", "make_reference"]

# Below this percentile a question is called unfamiliar.
UNFAMILIAR_BELOW = 0.01
UNFAMILIAR = (
    "This question is unlike those that the model was calibrated on; its answer may be wrong even if "
    "many trajectories agree."
)
_WORD = re.compile(r"[^\W\d_]+|\d+(?:[.,]\d+)*|[^\w\s]")
_QUANTILES = 101
_DECIMALS = 4
_LEAST = 0.01  # of new pairs: one alone in a hundred says little


@dataclass(frozen=True)
class Familiarity:
    """How like a question is to those of a reference."""

    # Fourth power of the share of new word pairs, relative to that of the newest hundredth; at most 1.
    # So nearly all of the reference has a novelty near 0, and questions of another kind have 1.
    novelty: float
    percentile: float  # share of the reference's questions that are at least as new to the others

    @property
    def is_unfamiliar(self) -> bool:
        """Whether hardly a question of the reference is as new."""
        return self.percentile < UNFAMILIAR_BELOW


@dataclass(frozen=True)
class Reference:
    """The word pairs of a set of questions, and how new each of these is to the others."""

    pairs: frozenset[str]
    quantiles: tuple[float, ...]  # of the shares of new pairs, ascending

    def familiarity(self, question: str) -> Familiarity:
        """Compare a question that is not of the reference with those that are."""
        pairs = _pairs(question)
        new = len(pairs - self.pairs) / len(pairs) if pairs else 1.0
        percentile = 1.0 - bisect_left(self.quantiles, new) / len(self.quantiles)
        return Familiarity(self.novelty(new), percentile)

    def novelty(self, new: float) -> float:
        """Novelty of a question with this share of new pairs."""
        most = max(self.quantiles[-2], _LEAST)  # the 99th percentile
        return min(1.0, new / most) ** 4


def make_reference(questions: Sequence[str]) -> tuple[Reference, list[float]]:
    """Make the reference of a set of questions, and the novelty of each of them to the others."""
    each = [_pairs(question) for question in questions]
    counts = Counter(pair for pairs in each for pair in pairs)
    shares = [_share(counts[pair] == 1 for pair in pairs) for pairs in each]
    quantiles = np.quantile(shares, np.linspace(0, 1, _QUANTILES)).round(_DECIMALS)
    reference = Reference(frozenset(counts), tuple(quantiles.tolist()))
    return reference, [reference.novelty(share) for share in shares]


def _share(are: Iterable[bool]) -> float:
    found = list(are)
    return sum(found) / len(found) if found else 1.0


def _pairs(question: str) -> frozenset[str]:
    """Pairs of neighbouring words in lower case; all numbers are one word."""
    words = ["0" if word[0].isdigit() else word for word in _WORD.findall(question.lower())]
    return frozenset(f"{one} {other}" for one, other in pairwise(words))
