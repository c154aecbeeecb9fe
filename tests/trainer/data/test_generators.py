"""Generators of drills and everyday problems."""

import random
from fractions import Fraction

from trainer.data.redraw.drills import draw_drill
from trainer.data.redraw.everyday import everyday_templates
from trainer.data.sources import load_rows


def test_drills_end_in_their_positive_answer() -> None:
    for seed in range(300):
        row = draw_drill(random.Random(seed))
        assert row.steps[-1].endswith(f"={row.answer}")
        assert int(row.answer) > 0


def test_every_everyday_form_can_be_drawn() -> None:
    for template in everyday_templates():
        rows = [template.draw(random.Random(seed)) for seed in range(10)]
        assert len({row.question for row in rows}) >= 5, template.key
        for row in [*rows, template.original()]:
            assert "{" not in row.question
            assert Fraction(row.answer) > 0


def test_generators_are_sources_of_rows_that_depend_on_the_seed() -> None:
    for name in ("drills", "everyday"):
        assert load_rows(name, 5) == load_rows(name, 8)[:5]
        assert load_rows(name, 5) != load_rows(name, 5, seed=1)
