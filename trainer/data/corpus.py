"""Tokenised rows and training batches; a batch is a pure function of (seed, step)."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from latent.calculator import Calculator
from latent.errors import InputError
from trainer.data.sources import Row

IGNORED = -100  # the label that cross-entropy ignores
_WINDOWS = 4
Ids = tuple[int, ...]


@dataclass(frozen=True)
class TextFormat:
    """Text around question and answer before tokenisation."""

    question_suffix: str
    answer_prefix: str
    step_line: str = "<<{}>>\n"

    def question(self, row: Row) -> str:
        """Text of the prompt."""
        return row.question.strip() + self.question_suffix

    def answer(self, row: Row) -> str:
        """Text of the target."""
        return self.answer_prefix + row.answer

    def steps(self, row: Row) -> list[str]:
        """Text of each step, a line each."""
        return [self.step_line.format(step) for step in row.steps]


@dataclass(frozen=True)
class Example:
    """A tokenised row: prompt, one line per step, and answer with end-of-text."""

    question: Ids
    steps: tuple[Ids, ...]
    answer: Ids
    equations: tuple[str, ...] = ()  # the steps as text
    # For each token of the steps, whether a calculator writes it; empty: it writes none.
    computed: tuple[bool, ...] = ()

    @property
    def length(self) -> int:
        """Number of tokens in all."""
        return len(self.question) + sum(map(len, self.steps)) + len(self.answer)


@dataclass(frozen=True)
class Batch:
    """Tensors of B examples with equal prompt length; IGNORED labels mark padding."""

    prompt: Tensor  # (B, P)
    inputs: Tensor  # (B, T) tokens fed after the thoughts
    labels: Tensor  # (B, T) token that each input must predict
    thoughts: int


def encode_rows(
    rows: Sequence[Row],
    tokenizer: PreTrainedTokenizerFast,
    layout: TextFormat,
    eos: int,
    calculator: Calculator | None = None,
) -> list[Example]:
    """Tokenise rows; each step is a line. With a calculator, mark the tokens that it writes."""
    lines = _encode_once([line for row in rows for line in layout.steps(row)], tokenizer)
    computed = {}
    if calculator is not None:
        marks = calculator.computed(list(lines.values()))
        computed = dict(zip(lines, marks, strict=True))
    answers = _encode_once([layout.answer(row) for row in rows], tokenizer)
    questions = _encode_once([layout.question(row) for row in rows], tokenizer)
    return [
        Example(
            question=questions[layout.question(row)],
            steps=tuple(lines[line] for line in layout.steps(row)),
            answer=(*answers[layout.answer(row)], eos),
            equations=row.steps,
            computed=tuple(mark for line in layout.steps(row) for mark in computed.get(line, ())),
        )
        for row in rows
    ]


def _encode_once(texts: Iterable[str], tokenizer: PreTrainedTokenizerFast) -> dict[str, Ids]:
    # In chunks, because encodings take far more memory than the ids that are kept.
    distinct = list(dict.fromkeys(texts))
    encoded: dict[str, Ids] = {}
    for begin in range(0, len(distinct), 10_000):
        chunk = distinct[begin : begin + 10_000]
        found = tokenizer.backend_tokenizer.encode_batch_fast(chunk, add_special_tokens=False)
        encoded.update((text, tuple(one.ids)) for text, one in zip(chunk, found, strict=True))
    return encoded


class Corpus:
    """Examples in buckets of equal prompt length, so that no prompt needs padding."""

    def __init__(self, examples: Sequence[Example]) -> None:
        if not examples:
            raise InputError("the training data is empty")
        buckets: defaultdict[int, list[int]] = defaultdict(list)
        for index, example in enumerate(examples):
            buckets[len(example.question)].append(index)
        self.examples = examples
        self._buckets = [np.array(buckets[length]) for length in sorted(buckets)]
        self._edges = np.cumsum([len(bucket) for bucket in self._buckets])

    def draw(self, size: int, rng: np.random.Generator) -> list[Example]:
        """Draw examples of equal prompt length and similar target length, all equally likely."""
        place = int(np.searchsorted(self._edges, rng.integers(self._edges[-1]), side="right"))
        bucket = self._buckets[place]
        windows = min(_WINDOWS, max(1, len(bucket) // size))
        chosen = rng.choice(bucket, size=min(size * windows, len(bucket)), replace=False)
        # Less padding: draw a few batches' worth, sort by target length, take one batch of it.
        drawn = sorted((self.examples[index] for index in chosen), key=_target_length)
        begin = int(rng.integers(windows)) * size
        return drawn[begin : begin + size]

    def in_order(self, size: int) -> list[list[Example]]:
        """All examples once, in batches of equal prompt length."""
        return [
            [self.examples[index] for index in bucket[begin : begin + size]]
            for bucket in self._buckets
            for begin in range(0, len(bucket), size)
        ]


def _target_length(example: Example) -> int:
    return sum(len(line) for line in example.steps) + len(example.answer)


def step_rng(seed: int, step: int) -> np.random.Generator:
    """Random generator of one training step; resuming needs no saved random state."""
    return np.random.default_rng((seed, step))


def make_batch(
    prompts: Sequence[Ids],
    targets: Sequence[Ids],
    first: int | None,
    thoughts: int,
    computed: Sequence[Sequence[bool]] = (),
) -> Batch:
    """Batch of prompts and targets; `first` is the input before the targets (<|end-latent|>).

    Without `first` it is the prompt's last token: plain text, no thoughts. The tokens marked in
    `computed`, from the beginning of each target, are no labels.
    """
    if first is None:
        leads = [prompt[-1] for prompt in prompts]
        prompts = [prompt[:-1] for prompt in prompts]
    else:
        leads = [first] * len(prompts)
    width = max(len(target) for target in targets)
    inputs: npt.NDArray[np.int64] = np.zeros((len(targets), width), dtype=np.int64)
    labels = np.full_like(inputs, IGNORED)
    for row, (lead, target) in enumerate(zip(leads, targets, strict=True)):
        inputs[row, 0] = lead
        inputs[row, 1 : len(target)] = target[:-1]
        labels[row, : len(target)] = target
    for row, marks in enumerate(computed):
        labels[row, : len(marks)][list(marks)] = IGNORED
    return Batch(
        prompt=torch.tensor(prompts, dtype=torch.long),
        inputs=torch.from_numpy(inputs),
        labels=torch.from_numpy(labels),
        thoughts=thoughts,
    )
