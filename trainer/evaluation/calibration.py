"""Calibrates the confidence of votes: rolls out held-out questions and fits `calibration.json`.

The model that is fitted is `latent.calibration`, the file `latent.calibration_file`.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import accumulate
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from latent.answers import same_answer
from latent.calibration import (
    Calibration,
    Calibrations,
    calibrated_name,
    evidence_of,
)
from latent.calibration_file import (
    misfit,
    read_calibrations,
    verifier_digest,
    write_calibrations,
)
from latent.errors import InputError
from latent.familiarity import Reference, make_reference
from latent.folders import sampler_digest
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
from trainer.evaluation.calibration_fit import (
    Judged,
    Transfer,
    fit,
    out_of_fold,
    question_weights,
    targets,
    transfers,
)
from trainer.evaluation.risk import RiskCurve, risk_curve
from trainer.evaluation.statistics import Floats, expected_calibration_error
from trainer.runs.progress import Progress

__all__ = [
    "CalibrationReport",
    "CalibrationRun",
    "HeldOut",
    "calibrate",
    "encoded",
    "held_out",
    "judged_votes",
    "parse_budgets",
    "parse_samplers",
    "warn_of_few",
]

HELD_OUT = f"{EMBEDDED}:validation"
OUTSIDE = f"{EMBEDDED}:ood"  # drawn with another seed than those that are evaluated
# Fewer questions are refused: thirteen coefficients can't be told from chance.
MIN_QUESTIONS = 50
# Fewer questions give a warning: with 200, the standard error of an accuracy is still 0.035.
RELIABLE_QUESTIONS = 200
# Seed of the generated questions. Backbones are selected on validation questions of seed 0, samplers
# on those of seed 1; calibration needs questions on which nothing was selected.
_DATA_SEED = 2
_REFERENCE_SIZE = 2000
_CHUNK_SIZE = 64


@dataclass(frozen=True)
class CalibrationRun:
    """Settings of `gts calibrate`."""

    samplers: tuple[SamplerSpec, ...]  # none for a panel, whose members have theirs
    data: tuple[str, ...]  # the reasoner's own kind of questions, then other kinds
    budgets: tuple[int, ...]  # ascending
    limit: int  # of each data
    seed: int
    out: Path

    @property
    def data_name(self) -> str:
        """The data as a calibration names it: without the folder of a file."""
        return ", ".join(Path(source).name for source in self.data)

    def budgets_of(self, sampler: Sampler) -> tuple[int, ...]:
        """Budgets to fit; without perturbations all trajectories are equal, so 1 is enough."""
        return (1,) if sampler.spec.kind == "deterministic" else self.budgets


@dataclass(frozen=True)
class CalibrationReport:
    """How far the confidence of one sampler's majority vote can be trusted."""

    curve: RiskCurve  # at the largest budget, out of fold
    transfers: tuple[Transfer, ...] = ()  # to each data from the others


def calibrate(
    reasoner: Reasoner, folder: Path, run: CalibrationRun
) -> tuple[Calibrations, dict[str, CalibrationReport]]:
    """Fit the votes of every sampler and write them to the file, beside those of other samplers.

    The vote `verifier` is one of them if the reasoner has a verifier.
    Also returns a report on each sampler that was fitted.
    """
    samplers = [
        load_sampler(reasoner, spec, resolve_sampler(folder, spec)) for spec in run.samplers
    ]
    data = held_out(run)
    rows = data.rows
    kept, dropped = _existing(reasoner, folder, run, data.reference)
    fitted: list[Calibration] = []
    reports: dict[str, CalibrationReport] = {}
    with Progress(len(rows) * len(samplers), 0, "calibrating") as progress:
        for text in dropped:
            progress.note(f"{run.out}: drops {text}")
        warn_of_few(data, progress)
        for place, sampler in enumerate(samplers):
            drawn = _roll_out(reasoner, sampler, rows, run, progress, done=place * len(rows))
            votes, report = _calibrate_sampler(reasoner, folder, sampler, data, run, drawn)
            fitted += votes
            reports[str(sampler.spec)] = report
    order = sorted((*fitted, *kept), key=lambda one: (one.sampler, one.vote))
    calibrations = Calibrations(reasoner.fingerprint, tuple(order), data.reference)
    write_calibrations(run.out, calibrations)
    return calibrations, reports


def judged_votes(
    question: int,
    trajectories: Sequence[Trajectory],
    truth: Decimal,
    budgets: Sequence[int],
    vote: VoteKind,
    *,
    novelty: float = 0.0,
    kind: int = 0,
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
            yield Judged(question, evidence_of(voted, novelty), is_right, kind)


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


@dataclass(frozen=True)
class HeldOut:
    """Questions to calibrate on: those of the first data, then those of the others."""

    rows: list[Row]
    novelties: list[float]  # of each question
    sizes: tuple[int, ...]  # how many are of each data
    reference: Reference  # of the first data

    @property
    def inside(self) -> int:
        """How many are of the first data."""
        return self.sizes[0]

    def kind(self, number: int) -> int:
        """Which data a question is of."""
        return bisect_right(list(accumulate(self.sizes)), number)


def held_out(run: CalibrationRun) -> HeldOut:
    """Load the questions to calibrate on; refuse those that are for another use, and too few."""
    for place, source in enumerate(run.data):
        allowed = (HELD_OUT,) if place == 0 else (HELD_OUT, OUTSIDE)
        if source.partition(":")[0] == EMBEDDED and source not in allowed:
            raise InputError(
                f"{source} is not held out for choosing; use {' or '.join(allowed)}, or a file",
                param="data",
            )
    rows, *others = [load_rows(source, run.limit, _DATA_SEED) for source in run.data]
    # Words cost nothing: more questions tell better which ones belong to this kind.
    known = load_rows(run.data[0], max(run.limit, _REFERENCE_SIZE), _DATA_SEED)
    if len(rows) < MIN_QUESTIONS:
        raise InputError(
            f"{len(rows)} questions are too few to calibrate on; give at least {MIN_QUESTIONS}",
            param="data",
        )
    reference, novelties = make_reference([row.question for row in known])
    outside = [row for other in others for row in other]
    new = [reference.familiarity(row.question).novelty for row in outside]
    sizes = tuple(len(each) for each in (rows, *others))
    return HeldOut([*rows, *outside], [*novelties[: len(rows)], *new], sizes, reference)


def warn_of_few(data: HeldOut, progress: Progress) -> None:
    """Say so if a calibration on these questions is rough."""
    if data.inside < RELIABLE_QUESTIONS:
        progress.note(
            f"warning: {data.inside} questions give a rough calibration; use "
            f"{RELIABLE_QUESTIONS} or more"
        )


def _existing(
    reasoner: Reasoner, folder: Path, run: CalibrationRun, reference: Reference
) -> tuple[list[Calibration], list[str]]:
    """The file's calibrations of other samplers that are still valid, and why others are dropped."""
    if not run.out.exists():
        return [], []
    found = read_calibrations(run.out)
    is_same = found.reasoner_fingerprint == reasoner.fingerprint
    refitted = {str(spec) for spec in run.samplers}
    verifier = verifier_digest(folder, reasoner.fingerprint)
    kept, dropped = [], []
    for one in found.fitted:
        if one.sampler in refitted:
            continue
        why = misfit(one, folder) if is_same else "it is for other weights of the reasoner"
        if why is None and found.reference != reference:
            why = "it was fitted on other questions"
        if why is None and one.vote == "verifier" and one.verifier_fingerprint != verifier:
            why = "the verifier has changed since it was calibrated"
        if why is None:
            kept.append(one)
        else:
            dropped.append(f"{one.sampler} with vote {one.vote}: {why}; calibrate it again")
    return kept, dropped


def _calibrate_sampler(
    reasoner: Reasoner,
    folder: Path,
    sampler: Sampler,
    data: HeldOut,
    run: CalibrationRun,
    drawn: Iterable[tuple[int, Sequence[Trajectory]]],
) -> tuple[list[Calibration], CalibrationReport]:
    budgets = run.budgets_of(sampler)
    votes: tuple[VoteKind, ...] = reasoner.format.votes
    if reasoner.verifier is not None:
        votes = (*votes, "verifier")
    judged: dict[VoteKind, list[Judged]] = {vote: [] for vote in votes}
    for number, trajectories in drawn:
        truth = Decimal(data.rows[number].answer)
        for vote in votes:
            judged[vote] += judged_votes(
                number,
                trajectories,
                truth,
                budgets,
                vote,
                novelty=data.novelties[number],
                kind=data.kind(number),
            )
    own = resolve_sampler(folder, sampler.spec)
    is_auto = sampler.spec.is_auto
    digest = None if own is None else sampler_digest(own, is_auto=is_auto)
    span = (budgets[0], budgets[-1])
    found = [_calibration(run, sampler.spec, digest, vote, judged[vote], span) for vote in votes]
    verifier = verifier_digest(folder, reasoner.fingerprint)
    calibrations = [
        replace(one, verifier_fingerprint=verifier) if one.vote == "verifier" else one
        for one, _ in found
    ]
    _, curve = found[0]
    return calibrations, CalibrationReport(curve, transfers(judged[votes[0]], span))


def _calibration(
    run: CalibrationRun,
    spec: SamplerSpec,
    digest: str | None,
    vote: VoteKind,
    judged: Sequence[Judged],
    budgets: tuple[int, int],
) -> tuple[Calibration, RiskCurve]:
    questions = len({one.question for one in judged})
    if questions < MIN_QUESTIONS:
        raise InputError(
            f"{spec} gives a parsable answer to only {questions} questions; calibrating needs "
            f"{MIN_QUESTIONS}",
            param="samplers",
        )
    # In the order of the data, so that the folds do not depend on the batches.
    judged = sorted(judged, key=lambda one: one.question)
    is_right, weights = targets(judged), question_weights(judged)
    shares = np.array([one.evidence.share for one in judged])
    is_inside = np.array([one.is_inside for one in judged])
    found = out_of_fold(judged, budgets)

    def error(values: Floats, where: NDArray[np.bool_]) -> float:
        return expected_calibration_error(values[where], is_right[where], weights[where])

    calibration = Calibration(
        sampler=str(spec),
        vote=vote,
        sampler_fingerprint=digest,
        coefficients=fit(judged, budgets),
        budgets=budgets,
        ece=error(found, is_inside),
        ece_outside=None if is_inside.all() else error(found, ~is_inside),
        share_ece=error(shares, is_inside),
        questions=questions,
        data=run.data_name,
        seed=run.seed,
    )
    is_last = np.array([one.evidence.budget == budgets[1] for one in judged])
    return calibration, risk_curve(found[is_last], is_right[is_last], is_inside[is_last])


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
        drawn = rollout(reasoner, sampler, asks, verifier=reasoner.verifier)
        for number, one in zip(numbers, drawn, strict=True):
            yield number, one.trajectories
        progress.show(done + first + len(numbers), {"sampler": str(sampler.spec)})


def encoded(reasoner: Reasoner, row: Row, number: int) -> tuple[int, ...]:
    """Encode a question of the data; the error of one that does not fit says which it is."""
    try:
        return reasoner.encode(row.question)
    except InputError as error:
        raise InputError(f"question {number + 1} of the data: {error}", param="data") from error
