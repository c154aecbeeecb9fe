"""Problems of a backbone run: rows are loaded, tokenised and checked, and drawn anew as it trains.

Of the decoder it knows only the tokenizer and the number of positions.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from transformers import PreTrainedTokenizerFast

from latent.calculator import Calculator
from latent.errors import InputError
from latent.files import write_text
from trainer.backbone.config import BackboneConfig
from trainer.backbone.curriculum import Stage
from trainer.backbone.spelled_thoughts import Spelling
from trainer.data.corpus import Corpus, Example, TextFormat, encode_rows
from trainer.data.mixture import HELD_OUT, Mixture, load_mixture
from trainer.data.redraw.overlap import find_overlap, masked_questions
from trainer.data.sources import EMBEDDED, Row, load_rows

__all__ = ["Encoding", "Problems", "RowSets", "load_row_sets"]

_DRAWN_PROBLEMS = 4000


@dataclass(frozen=True)
class RowSets:
    """Training, validation and test rows of a run, not yet tokenised."""

    mixture: Mixture
    train: list[Row]  # with their published numbers
    validation: list[Row]
    test: list[Row]  # empty: there is no test
    digest: str  # SHA-256 of all rows, for the run's identity
    overlap: int | None  # test questions in training, whatever their numbers; None: not counted


def load_row_sets(config: BackboneConfig) -> RowSets:
    """Load all rows that the settings name; raises if any of the sources is unusable."""
    mixture = load_mixture(
        config.data,
        limit=config.train_problems,
        redraw=config.redraw_numbers,
        hold_out=config.validation == HELD_OUT,
        exclude=config.exclude,
        distractors=config.distractors,
        seed=config.seed,
    )
    train = mixture.published()
    if config.validation == HELD_OUT:
        validation = mixture.held_out(config.validation_problems)
    else:
        validation = load_rows(config.validation, config.validation_problems)
    test = load_rows(config.test, config.test_problems) if config.test else []
    digest = hashlib.sha256(repr((train, validation, test)).encode()).hexdigest()
    overlap: int | None = None  # not for the embedded task, whose splits share words
    if config.test and not config.test.startswith(EMBEDDED):
        overlap = len(find_overlap(test, masked_questions(train)))
    return RowSets(mixture, train, validation, test, digest, overlap)


@dataclass(frozen=True)
class Encoding:
    """How problems become tokens, and what limits their length."""

    tokenizer: PreTrainedTokenizerFast
    layout: TextFormat
    eos: int
    positions: int | None  # of the decoder; None: no limit
    calculator: Calculator | None = None
    spelling: Spelling | None = None  # the equations must fit into the thoughts

    def encode(self, rows: Sequence[Row]) -> list[Example]:
        """Tokenise rows in the layout of the recipe."""
        return encode_rows(rows, self.tokenizer, self.layout, self.eos, self.calculator)


class Problems:
    """Tokenised training, validation and test problems of a run."""

    def __init__(
        self, config: BackboneConfig, rows: RowSets, encoding: Encoding, stages: Sequence[Stage]
    ) -> None:
        """Tokenise all rows; raises if a stage could not use them."""
        self.stages = stages
        self.mixture, self.digest, self.overlap = rows.mixture, rows.digest, rows.overlap
        self._config, self._encoding = config, encoding
        is_constant = self.mixture.is_constant
        leaves_out = config.max_tokens > 0 or config.spelled_thoughts
        omit_long = not is_constant or leaves_out
        self.train = self._corpus(rows.train, omit_long)
        self._pool = 0 if is_constant else None  # that self.train holds
        self.too_long = len(rows.train) - len(self.train.examples)
        is_own = config.validation == HELD_OUT or leaves_out
        self.validation = self._corpus(rows.validation, omit_long=is_own)
        self.test = self._corpus(rows.test) if rows.test else None
        self._check()

    def draw(self, step: int, rng: np.random.Generator) -> list[Example]:
        """Draw the batch of a step from its pool, which `train` holds from then on."""
        index = self.mixture.pool_at(step, self._config.batch)
        if index != self._pool:
            # Numbers drawn anew may have more digits, and so more tokens, than the published ones.
            self.train = self._corpus(self.mixture.pool(index), omit_long=True)
            self._pool = index
        return self.train.draw(self._config.batch, rng)

    def write(self, out: Path) -> None:
        """Write the problems that the run holds out and draws, for other commands to use."""
        if self._config.validation == HELD_OUT:  # to choose by
            _write_rows(out / "held-out.jsonl", self.mixture.held_out())
            if self._config.redraw_numbers:  # to calibrate on
                _write_rows(out / "held-out-drawn.jsonl", self.mixture.held_out_drawn())
        if self._config.redraw_numbers and self._config.recipe != "cot":  # to train a sampler on
            rows = self.mixture.drawn(_DRAWN_PROBLEMS)
            pairs = zip(rows, self._encoding.encode(rows), strict=True)
            fitting = [row for row, example in pairs if self._fitting([example])]
            _write_rows(out / "drawn.jsonl", fitting)

    def _corpus(self, rows: Sequence[Row], omit_long: bool = False) -> Corpus:
        examples = self._encoding.encode(rows)
        return Corpus(self._fitting(examples) if omit_long else examples)

    def _fitting(self, examples: Sequence[Example]) -> list[Example]:
        """Examples that are not too long, and whose equations the thoughts can spell."""
        limit, spelling = self._length_limit(), self._encoding.spelling
        return [
            example
            for example in examples
            if (limit is None or example.length <= limit)
            and (spelling is None or spelling.fits(example))
        ]

    def _length_limit(self) -> int | None:
        """Most tokens that an example may have beside its thoughts and the two latent markers."""
        positions, max_tokens = self._encoding.positions, self._config.max_tokens
        thoughts = max(stage.thoughts for stage in self.stages)
        limits = [] if positions is None else [positions - thoughts - 2]
        limits += [max_tokens] if max_tokens else []
        return min(limits, default=None)

    def _check(self) -> None:
        """Refuse at once what would fail in a later stage, perhaps hours from now."""
        config, limit = self._config, self._length_limit()
        reads_steps = any(stage.is_text or stage.is_forced for stage in self.stages)
        sources = (  # the test is for the last stage only
            (", ".join(config.data), self.train, reads_steps),
            (config.validation, self.validation, reads_steps),
            (config.test, self.test, self.stages[-1].is_text),
        )
        for source, corpus, needs_steps in sources:
            if corpus is None:
                continue
            if needs_steps and not any(example.steps for example in corpus.examples):
                raise InputError(f"{source} has no equations, and {config.recipe} needs them")
            for number, example in enumerate(corpus.examples, start=1):
                if limit is not None and example.length > limit:
                    begin = self._encoding.tokenizer.decode(list(example.question[:12]))
                    raise InputError(
                        f"{source}, row {number} has {example.length} tokens ({begin!r}…); beside its "
                        f"thoughts the decoder takes {limit}: leave it out"
                    )


def _write_rows(path: Path, rows: Sequence[Row]) -> None:
    lines = [json.dumps(asdict(row)) for row in rows]
    write_text(path, "\n".join(lines) + "\n")
