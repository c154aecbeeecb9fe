"""Training problems of one or several sources: mixed by weight, numbers drawn anew, templates held out.

A run that mixes by weight or draws numbers trains on pools, one after the other. A pool is a function
of the seed and its index alone, so resuming needs no saved random state.
"""

import math
import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from latent.errors import InputError
from trainer.data.redraw.distractors import add_distractors
from trainer.data.redraw.overlap import is_held_out, masked_questions
from trainer.data.redraw.template import Drawable, Fixed
from trainer.data.redraw.tracing import trace_row
from trainer.data.rows import Row
from trainer.data.sources import EMBEDDED, GENERATORS, load_places, load_rows

__all__ = ["HELD_OUT", "Mixture", "Source", "load_mixture", "parse_weight"]

HELD_OUT = "held-out"  # in place of a validation file: a part of the training data
_POOL_SIZE = 8192
_GENERATOR_SIZE = 1000  # rows that a generator counts for if there are no weights


@dataclass(frozen=True)
class Source:
    """Problems of one file or generator, and how many were left out of it."""

    name: str
    weight: float | None
    size: int  # its share of the examples if no source has a weight
    training: tuple[Drawable, ...]
    held_out: tuple[Drawable, ...] = ()
    excluded: int = 0  # their words are those of a test question
    unusable: int = 0  # no equations that lead to the answer

    def to_json(self) -> dict[str, str | float | int | None]:
        """Counts for the record of a run."""
        return {
            "source": self.name,
            "weight": self.weight,
            "templates": len(self.training),
            "drawn anew": sum(template.can_redraw for template in self.training),
            "held out": len(self.held_out),
            "excluded": self.excluded,
            "unusable": self.unusable,
        }


def parse_weight(text: str) -> tuple[str, float | None]:
    """Split `PATH=0.5` into path and weight; a weight is optional."""
    path, _, weight = text.rpartition("=")
    try:
        value = float(weight)
    except ValueError:
        return text, None
    if not path or Path(text).exists():
        return text, None
    if not 0 < value < math.inf:
        raise InputError(f"the weight of {path} must be above 0, got {weight}", param="data")
    return path, value


def load_mixture(
    texts: Sequence[str],
    *,
    limit: int | None = None,
    redraw: bool = False,
    hold_out: bool = False,
    exclude: Sequence[str] = (),
    distractors: float = 0.0,
    seed: int = 0,
) -> "Mixture":
    """Load every `PATH[=WEIGHT]`, at most `limit` rows of each.

    With `hold_out` a part of the templates is kept for validation. Questions whose words, numbers
    masked, are those of a question in the files `exclude` are left out. `distractors` is the share of
    drawn problems that get a sentence of another one.
    """
    named = [parse_weight(text) for text in texts]
    if len({weight is None for _, weight in named}) > 1:
        raise InputError("give a weight to every data source, or to none", param="data")
    test_keys: set[str] = set()
    for path in exclude:
        test_keys |= masked_questions(load_rows(path))
    sources = [
        _load_source(name, weight, limit, redraw, hold_out, test_keys) for name, weight in named
    ]
    return Mixture(sources, redraw, seed, distractors=distractors)


class Mixture:
    """Sources mixed by weight, or by size if they have none."""

    def __init__(
        self,
        sources: Sequence[Source],
        redraw: bool,
        seed: int,
        pool_size: int = _POOL_SIZE,
        distractors: float = 0.0,
    ) -> None:
        self.sources = sources
        # Without weights or draws there is one pool: all rows.
        self.is_constant = not redraw and all(source.weight is None for source in sources)
        self._redraw, self._seed, self._distractors = redraw, seed, distractors
        self.pool_size = min(pool_size, sum(source.size for source in sources))

    def published(self) -> list[Row]:
        """All training problems with their published numbers, source after source."""
        return [template.original() for source in self.sources for template in source.training]

    def held_out(self, limit: int | None = None) -> list[Row]:
        """Held-out problems with their published numbers; the first ones mix the sources by weight."""
        return [template.original() for template in self._held_out()[:limit]]

    def held_out_drawn(self) -> list[Row]:
        """Held-out problems with numbers drawn anew, in the same order.

        Every second one has a statement that does not matter: questions that people ask are harder
        than those of training sets, and a confidence fitted on the latter is too high. None is drawn
        twice, so that calibrating can tell how new the words of a question are to the others.
        """
        rng = random.Random(f"{self._seed}/{HELD_OUT}")
        drawn = [template.draw(rng) for template in self._held_out()]
        spoilt = add_distractors(drawn, 1.0, rng)
        return [pair[place % 2] for place, pair in enumerate(zip(drawn, spoilt, strict=True))]

    def _held_out(self) -> list[Drawable]:
        rng = random.Random(HELD_OUT)
        placed: list[tuple[float, Drawable]] = []
        for source in self.sources:
            templates = list(source.held_out)
            rng.shuffle(templates)
            share = source.weight or source.size
            placed += [((number + 0.5) / share, each) for number, each in enumerate(templates)]
        if not placed:
            raise InputError("the data is too small to hold out a part of it", param="validation")
        placed.sort(key=lambda each: each[0])
        return [template for _, template in placed]

    def drawn(self, limit: int) -> list[Row]:
        """Problems as a training draws them, of a pool of their own, in a mixed order."""
        rows = self.pool(-1)
        random.Random(f"{self._seed}/drawn").shuffle(rows)
        return rows[:limit]

    def pool_at(self, step: int, batch: int) -> int:
        """Index of the pool from which a step draws: a new one after each has been used once."""
        return 0 if self.is_constant else step // math.ceil(self.pool_size / batch)

    def pool(self, index: int) -> list[Row]:
        """Rows of a pool: each source by its weight, its templates equally often."""
        if self.is_constant:
            return self.published()
        rng = random.Random(f"{self._seed}/{index}")
        rows: list[Row] = []
        for source, count in zip(self.sources, self._counts(), strict=True):
            order: list[Drawable] = []
            while len(order) < count:
                order += rng.sample(source.training, len(source.training))
            rows += [
                template.draw(rng) if self._redraw else template.original()
                for template in order[:count]
            ]
        return add_distractors(rows, self._distractors, rng) if self._distractors else rows

    def _counts(self) -> list[int]:
        """Rows of each source in a pool."""
        weights = [source.weight or source.size for source in self.sources]
        edges = [
            round(self.pool_size * sum(weights[:end]) / sum(weights))
            for end in range(len(weights) + 1)
        ]
        return [end - begin for begin, end in pairwise(edges)]


def _load_source(
    name: str,
    weight: float | None,
    limit: int | None,
    redraw: bool,
    hold_out: bool,
    test_keys: Collection[str],
) -> Source:
    is_generator = redraw and name in GENERATORS
    found = _load_templates(name, limit, redraw)
    templates = [template for template in found if template is not None]
    unusable = len(found) - len(templates)
    if not templates:
        raise InputError(
            f"{name} has no equations that lead to its answers, and --redraw-numbers needs them",
            param="redraw_numbers",
        )
    if test_keys:
        templates = [template for template in templates if template.key not in test_keys]
    excluded = len(found) - unusable - len(templates)
    training, held = templates, []
    if hold_out and len(templates) > 1:  # drills are one template, which is not divided
        held = [template for template in templates if is_held_out(template.key)]
        training = [template for template in templates if not is_held_out(template.key)]
    if not training:
        raise InputError(f"nothing of {name} is left to train on", param="data")
    size = _GENERATOR_SIZE if is_generator else len(training)
    return Source(name, weight, size, tuple(training), tuple(held), excluded, unusable)


def _load_templates(name: str, limit: int | None, redraw: bool) -> Sequence[Drawable | None]:
    """Templates of a source; None for a row whose equations do not lead to its answer."""
    if not redraw or name.partition(":")[0] == EMBEDDED:  # its generator draws numbers already
        return [Fixed(row) for row in load_rows(name, limit)]
    if name in GENERATORS:
        return GENERATORS[name]()
    return [place.template or trace_row(place.row) for place in load_places(name, limit)]
