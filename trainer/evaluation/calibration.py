"""Calibrates the confidence of votes: rolls out held-out questions and fits `calibration.json`.

The model that is fitted is `latent.calibration`, the file `latent.calibration_file`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from decimal import Decimal
from pathlib import Path
from typing import get_args

import numpy as np

from latent.answers import same_answer
from latent.calibration import (
    Calibration,
    Calibrations,
    Coefficients,
    Evidence,
    calibrated_name,
    evidence_of,
    features,
)
from latent.calibration_file import misfit, read_calibrations, write_calibrations
from latent.errors import InputError
from latent.folders import weights_digest
from latent.noise import derive_seed
from latent.reasoner import Reasoner
from latent.rollout import Ask, rollout
from latent.samplers import Sampler
from latent.specs import SamplerSpec
from latent.store import load_sampler
from latent.trajectory import DETERMINISTIC, Trajectory
from latent.votes import VoteKind, tally
from latent.zoo import resolve_sampler
from trainer.data.sources import EMBEDDED, Row, load_rows
from trainer.evaluation.statistics import Floats, expected_calibration_error
from trainer.runs.progress import Progress

__all__ = [
    "CalibrationRun",
    "Judged",
    "calibrate",
    "encoded",
    "fit",
    "held_out",
    "judged_votes",
    "out_of_fold",
    "parse_budgets",
    "parse_samplers",
    "question_weights",
    "warn_of_few",
]

HELD_OUT = f"{EMBEDDED}:validation"
# Fewer questions are refused: eight coefficients can't be told from chance.
MIN_QUESTIONS = 50
# Fewer questions give a warning: with 200, the standard error of an accuracy is still 0.035.
RELIABLE_QUESTIONS = 200
# Seed of the generated questions. Backbones are selected on validation questions of seed 0, samplers
# on those of seed 1; calibration needs questions on which nothing was selected.
_DATA_SEED = 2
_CHUNK_SIZE = 64
_FOLDS = 5
# Variance of the normal prior on every weight of a standardised feature. It weighs as much as one
# question, enough to keep the weights finite when all of a few questions are right.
_PRIOR = 1.0
_ITERATIONS = 100
_SMALLEST_STEP = 1e-9
_IS_MONOTONE = np.array([field.name in Coefficients.MONOTONE for field in fields(Coefficients)])


@dataclass(frozen=True)
class CalibrationRun:
    """Settings of `gts calibrate`."""

    samplers: tuple[SamplerSpec, ...]  # none for a panel, whose members have theirs
    data: str
    budgets: tuple[int, ...]  # ascending
    limit: int
    seed: int
    out: Path

    @property
    def data_name(self) -> str:
        """The data as a calibration names it: without the folder of a file."""
        return self.data if self.data == HELD_OUT else Path(self.data).name

    def budgets_of(self, sampler: Sampler) -> tuple[int, ...]:
        """Budgets to fit; without perturbations all trajectories are equal, so 1 is enough."""
        return (1,) if sampler.spec.kind == "deterministic" else self.budgets


@dataclass(frozen=True)
class Judged:
    """A vote on a held-out question, and whether its winner is right."""

    question: int
    evidence: Evidence
    is_right: bool


def calibrate(reasoner: Reasoner, folder: Path, run: CalibrationRun) -> Calibrations:
    """Fit the votes of every sampler and write them to the file, beside those of other samplers."""
    samplers = [
        load_sampler(reasoner, spec, resolve_sampler(folder, spec)) for spec in run.samplers
    ]
    kept, dropped = _existing(reasoner, folder, run)
    rows = held_out(run)
    fitted: list[Calibration] = []
    with Progress(len(rows) * len(samplers), 0, "calibrating") as progress:
        for text in dropped:
            progress.note(f"{run.out}: drops {text}")
        warn_of_few(rows, progress)
        for place, sampler in enumerate(samplers):
            drawn = _roll_out(reasoner, sampler, rows, run, progress, done=place * len(rows))
            fitted += _calibrate_sampler(reasoner, folder, sampler, rows, run, drawn)
    order = sorted((*fitted, *kept), key=lambda one: (one.sampler, one.vote))
    calibrations = Calibrations(reasoner.fingerprint, tuple(order))
    write_calibrations(run.out, calibrations)
    return calibrations


def judged_votes(
    question: int,
    trajectories: Sequence[Trajectory],
    truth: Decimal,
    budgets: Sequence[int],
    vote: VoteKind,
) -> Iterator[Judged]:
    """Judge the vote at each budget; votes won by unparsable answers are left out.

    `trajectories` starts with the deterministic trajectory, which a budget of 1 uses. A deadline can
    also leave the first sample alone, so that counts as a vote too.
    """
    deterministic, samples = trajectories[:1], trajectories[1:]
    subsets = [samples[:budget] for budget in budgets]
    if 1 in budgets:
        subsets.append(deterministic)
    for subset in subsets:
        voted = tally(subset, vote)
        if voted.winner.answer is not None:
            is_right = same_answer(voted.winner.answer, truth)
            yield Judged(question, evidence_of(voted), is_right)


def parse_budgets(text: str) -> tuple[int, ...]:
    """Parse budgets like 1,2,4,8; sorted, without duplicates."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and int(word) >= 1 for word in words):
        raise InputError(
            f"budgets {text!r} must be whole numbers from 1, as in 1,2,4,8", param="budgets"
        )
    return tuple(sorted({int(word) for word in words}))


def parse_samplers(text: str) -> tuple[SamplerSpec, ...]:
    """Parse sampler specs like gts,gaussian:1.0; paths are refused, as only names are served."""
    specs = [SamplerSpec.parse(word) for word in text.split(",")]
    for spec in specs:
        if "/" in (spec.name or ""):
            raise InputError(
                f"{spec}: a calibration is for the samplers in a reasoner's folder; put this one into "
                "its samplers/NAME and calibrate gts:NAME",
                param="samplers",
            )
    return tuple(SamplerSpec.parse(name) for name in dict.fromkeys(map(calibrated_name, specs)))


def held_out(run: CalibrationRun) -> list[Row]:
    """Load the questions to calibrate on; refuse those that are for another use, and too few."""
    if run.data.partition(":")[0] == EMBEDDED and run.data != HELD_OUT:
        raise InputError(
            f"{run.data} is not held out for choosing; use {HELD_OUT} or a file", param="data"
        )
    rows = load_rows(run.data, run.limit, _DATA_SEED)
    if len(rows) < MIN_QUESTIONS:
        raise InputError(
            f"{len(rows)} questions are too few to calibrate on; give at least {MIN_QUESTIONS}",
            param="data",
        )
    return rows


def warn_of_few(rows: Sequence[Row], progress: Progress) -> None:
    """Say so if a calibration on these questions is rough."""
    if len(rows) < RELIABLE_QUESTIONS:
        progress.note(
            f"warning: {len(rows)} questions give a rough calibration; use "
            f"{RELIABLE_QUESTIONS} or more"
        )


def _existing(
    reasoner: Reasoner, folder: Path, run: CalibrationRun
) -> tuple[list[Calibration], list[str]]:
    """The file's calibrations of other samplers that are still valid, and why others are dropped."""
    if not run.out.exists():
        return [], []
    found = read_calibrations(run.out)
    is_same = found.reasoner_fingerprint == reasoner.fingerprint
    refitted = {str(spec) for spec in run.samplers}
    kept, dropped = [], []
    for one in found.fitted:
        if one.sampler in refitted:
            continue
        why = misfit(one, folder) if is_same else "it is for other weights of the reasoner"
        if why is None:
            kept.append(one)
        else:
            dropped.append(f"{one.sampler} with vote {one.vote}: {why}; calibrate it again")
    return kept, dropped


def _calibrate_sampler(
    reasoner: Reasoner,
    folder: Path,
    sampler: Sampler,
    rows: Sequence[Row],
    run: CalibrationRun,
    drawn: Iterable[tuple[int, Sequence[Trajectory]]],
) -> list[Calibration]:
    budgets = run.budgets_of(sampler)
    votes = [kind for kind in get_args(VoteKind) if reasoner.format.is_latent or kind != "centroid"]
    judged: dict[VoteKind, list[Judged]] = {vote: [] for vote in votes}
    for number, trajectories in drawn:
        truth = Decimal(rows[number].answer)
        for vote in votes:
            judged[vote] += judged_votes(number, trajectories, truth, budgets, vote)
    own = resolve_sampler(folder, sampler.spec)
    digest = None if own is None else weights_digest(own)
    span = (budgets[0], budgets[-1])
    return [_calibration(run, sampler.spec, digest, vote, judged[vote], span) for vote in votes]


def _calibration(
    run: CalibrationRun,
    spec: SamplerSpec,
    digest: str | None,
    vote: VoteKind,
    judged: Sequence[Judged],
    budgets: tuple[int, int],
) -> Calibration:
    questions = len({one.question for one in judged})
    if questions < MIN_QUESTIONS:
        raise InputError(
            f"{spec} gives a parsable answer to only {questions} questions; calibrating needs "
            f"{MIN_QUESTIONS}",
            param="samplers",
        )
    # In the order of the data, so that the folds do not depend on the batches.
    judged = sorted(judged, key=lambda one: one.question)
    is_right, weights = _targets(judged), question_weights(judged)
    shares = np.array([one.evidence.share for one in judged])
    return Calibration(
        sampler=str(spec),
        vote=vote,
        sampler_fingerprint=digest,
        coefficients=fit(judged, budgets),
        budgets=budgets,
        ece=expected_calibration_error(out_of_fold(judged, budgets), is_right, weights),
        share_ece=expected_calibration_error(shares, is_right, weights),
        questions=questions,
        data=run.data_name,
        seed=run.seed,
    )


def _roll_out(
    reasoner: Reasoner,
    sampler: Sampler,
    rows: Sequence[Row],
    run: CalibrationRun,
    progress: Progress,
    *,
    done: int,
) -> Iterator[tuple[int, Sequence[Trajectory]]]:
    """Trajectories: the deterministic trajectory and the samples of each question, shortest first."""
    prompts = [encoded(reasoner, row, number) for number, row in enumerate(rows)]
    order = sorted(range(len(rows)), key=lambda number: len(prompts[number]))
    indices = (DETERMINISTIC, *range(run.budgets_of(sampler)[-1]))
    for first in range(0, len(order), _CHUNK_SIZE):
        numbers = order[first : first + _CHUNK_SIZE]
        asks = [Ask(prompts[n], derive_seed(run.seed, "calibrate", n), indices) for n in numbers]
        for number, one in zip(numbers, rollout(reasoner, sampler, asks), strict=True):
            yield number, one.trajectories
        progress.show(done + first + len(numbers), {"sampler": str(sampler.spec)})


def encoded(reasoner: Reasoner, row: Row, number: int) -> tuple[int, ...]:
    """Encode a question of the data; the error of one that does not fit says which it is."""
    try:
        return reasoner.encode(row.question)
    except InputError as error:
        raise InputError(f"question {number + 1} of the data: {error}", param="data") from error


def fit(judged: Sequence[Judged], budgets: tuple[int, int]) -> Coefficients:
    """Maximum a posteriori coefficients; each question has weight 1, however often it was voted on.

    The features were selected by out-of-fold log-loss on an embedded text reasoner: slopes that
    change with the budget, and a term in 1/N, helped; a linear or capped confidence did not.
    """
    solution = _solve(_design(judged, budgets), _targets(judged), question_weights(judged))
    return Coefficients(*solution.tolist())


def out_of_fold(judged: Sequence[Judged], budgets: tuple[int, int]) -> Floats:
    """Cross-validated probability of each vote, with whole questions in a fold."""
    design = _design(judged, budgets)
    _, place = np.unique([one.question for one in judged], return_inverse=True)
    fold = place % _FOLDS
    found = np.zeros(len(judged))
    for number in range(_FOLDS):
        rest = [one for one, of in zip(judged, fold, strict=True) if of != number]
        coefficients = np.array(astuple(fit(rest, budgets)))
        found[fold == number] = _sigmoid(design[fold == number] @ coefficients)
    return found


def question_weights(judged: Sequence[Judged]) -> Floats:
    """Weight of each vote: 1 over the number of votes on its question."""
    questions = np.array([one.question for one in judged])
    _, place, counts = np.unique(questions, return_inverse=True, return_counts=True)
    return np.asarray(1.0 / counts[place], dtype=np.float64)


def _design(judged: Sequence[Judged], budgets: tuple[int, int]) -> Floats:
    return np.stack([features(one.evidence, budgets) for one in judged])  # (votes, features)


def _targets(judged: Sequence[Judged]) -> Floats:
    return np.array([one.is_right for one in judged], dtype=np.float64)


def _solve(design: Floats, is_right: Floats, weights: Floats) -> Floats:
    """Minimise log-loss plus prior by projected Newton steps; the monotone weights stay ≥ 0."""
    total = weights.sum()
    centre = weights @ design / total
    scale = np.sqrt(weights @ (design - centre) ** 2 / total)
    is_constant = scale < _SMALLEST_STEP
    centre[0], scale[is_constant] = 0.0, 1.0
    scaled = (design - centre) / scale

    def loss(theta: Floats) -> float:
        logits = scaled @ theta
        losses = np.logaddexp(0.0, logits) - is_right * logits
        return float(weights @ losses + 0.5 * _PRIOR * theta @ theta)

    theta = np.zeros(design.shape[1])
    for _ in range(_ITERATIONS):
        p = _sigmoid(scaled @ theta)
        gradient = scaled.T @ (weights * (p - is_right)) + _PRIOR * theta
        hessian = (scaled.T * (weights * p * (1 - p))) @ scaled + _PRIOR * np.eye(len(theta))
        # A weight at its bound whose step would go below the bound is fixed in this iteration.
        free = np.flatnonzero(~(_IS_MONOTONE & (theta <= 0) & (gradient > 0)))
        step = np.zeros_like(theta)
        step[free] = np.linalg.solve(hessian[np.ix_(free, free)], gradient[free])
        rate, before = 1.0, loss(theta)
        while loss(_projected(theta - rate * step)) >= before and rate > _SMALLEST_STEP:
            rate /= 2
        if np.abs(rate * step).max() < _SMALLEST_STEP:
            break
        theta = _projected(theta - rate * step)
    theta = theta / scale
    theta[0] -= centre[1:] @ theta[1:]
    return np.asarray(theta)


def _projected(theta: Floats) -> Floats:
    return np.where(_IS_MONOTONE, np.maximum(theta, 0.0), theta)


def _sigmoid(logits: Floats) -> Floats:
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * logits)))
