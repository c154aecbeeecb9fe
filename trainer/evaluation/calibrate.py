"""Calibrates the confidence of a reasoner's votes: held-out questions in, `calibration.json` out."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import get_args

import numpy as np

from latent.answers import same_answer
from latent.calibration import Calibration, Calibrations, calibrated_name, evidence_of
from latent.calibration_file import misfit, read_calibrations, write_calibrations
from latent.errors import InputError
from latent.folders import weights_digest
from latent.noise import derive_seed
from latent.reasoner import Reasoner
from latent.rollout import Ask, rollout
from latent.samplers import Sampler
from latent.solve import ballots_of
from latent.specs import SamplerSpec
from latent.store import load_sampler
from latent.trajectory import DETERMINISTIC
from latent.votes import Ballot, VoteKind, tally
from latent.zoo import resolve_sampler
from trainer.data.sources import EMBEDDED, Row, load_rows
from trainer.evaluation.calibration_fit import (
    Judged,
    expected_calibration_error,
    fit,
    out_of_fold,
    question_weights,
)
from trainer.runs.progress import Progress

__all__ = ["CalibrationRun", "calibrate", "judged_votes", "parse_budgets", "parse_samplers"]

HELD_OUT = f"{EMBEDDED}:validation"
FEWEST_QUESTIONS = 10
# A generator seed of its own: backbones are chosen by validation questions of seed 0, samplers by
# those of seed 1, and a calibration is for questions that chose nothing.
_FRESH = 2
_QUESTIONS_AT_ONCE = 64


@dataclass(frozen=True)
class CalibrationRun:
    """What the command line says."""

    samplers: tuple[SamplerSpec, ...]
    data: str
    budgets: tuple[int, ...]  # ascending
    limit: int
    seed: int
    out: Path


def calibrate(reasoner: Reasoner, folder: Path, run: CalibrationRun) -> Calibrations:
    """Fit every sampler's votes and write them beside what the file has of others."""
    samplers = [
        load_sampler(reasoner, spec, resolve_sampler(folder, spec)) for spec in run.samplers
    ]
    others, dropped = _others(reasoner, folder, run)
    rows = _held_out(run)
    fitted: list[Calibration] = []
    with Progress(len(rows) * len(samplers), 0) as progress:
        for what in dropped:
            progress.note(f"{run.out}: {what}; left out, calibrate it again")
        for place, sampler in enumerate(samplers):

            def tell(
                done: int, before: int = place * len(rows), name: str = str(sampler.spec)
            ) -> None:
                progress.show(before + done, {"sampler": name})

            fitted += _calibrate_sampler(reasoner, folder, sampler, rows, run, tell)
    order = sorted((*fitted, *others), key=lambda one: (one.sampler, one.vote))
    calibrations = Calibrations(reasoner.fingerprint, tuple(order))
    write_calibrations(run.out, calibrations)
    return calibrations


def judged_votes(
    question: int,
    ballots: Sequence[Ballot],
    truth: Decimal,
    budgets: Sequence[int],
    vote: VoteKind,
) -> Iterator[Judged]:
    """Hold the vote of each budget against the truth; a vote that nobody can read is left out.

    The first ballot is the deterministic one, which is what a budget of 1 is; a deadline can also
    leave the first sample alone, so that is fitted too.
    """
    unperturbed, samples = ballots[:1], ballots[1:]
    casts = [samples[:budget] for budget in budgets]
    if 1 in budgets:
        casts.append(unperturbed)
    for cast in casts:
        voted = tally(cast, vote)
        if voted.winner.answer is not None:
            is_right = same_answer(voted.winner.answer, truth)
            yield Judged(question, evidence_of(voted), is_right)


def parse_budgets(text: str) -> tuple[int, ...]:
    """Read budgets like 1,2,4,8."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and int(word) >= 1 for word in words):
        raise InputError(
            f"budgets {text!r} must be whole numbers from 1, as in 1,2,4,8", param="budgets"
        )
    return tuple(sorted({int(word) for word in words}))


def parse_samplers(text: str) -> tuple[SamplerSpec, ...]:
    """Read sampler specs like gts,gaussian:1.0; a path is refused, since only names are served."""
    specs = [SamplerSpec.parse(word) for word in text.split(",")]
    for spec in specs:
        if "/" in (spec.name or ""):
            raise InputError(
                f"{spec}: a calibration is for the samplers in a reasoner's folder; put this one into "
                "its samplers/NAME and calibrate gts:NAME",
                param="samplers",
            )
    return tuple(SamplerSpec.parse(name) for name in dict.fromkeys(map(calibrated_name, specs)))


def _held_out(run: CalibrationRun) -> list[Row]:
    if run.data.partition(":")[0] == EMBEDDED and run.data != HELD_OUT:
        raise InputError(
            f"{run.data} is not held out for choosing; use {HELD_OUT} or a file", param="data"
        )
    rows = load_rows(run.data, run.limit, _FRESH)
    if len(rows) < FEWEST_QUESTIONS:
        raise InputError(
            f"{len(rows)} questions are too few to calibrate on; give at least {FEWEST_QUESTIONS}",
            param="data",
        )
    return rows


def _others(
    reasoner: Reasoner, folder: Path, run: CalibrationRun
) -> tuple[list[Calibration], list[str]]:
    """Give what the file holds for other samplers: what is still right, and why the rest is not."""
    if not run.out.exists():
        return [], []
    found = read_calibrations(run.out)
    if found.reasoner_fingerprint != reasoner.fingerprint:
        return [], ["its calibrations are of other weights of the reasoner"]
    replaced = {str(spec) for spec in run.samplers}
    others = [(one, misfit(one, folder)) for one in found.fitted if one.sampler not in replaced]
    kept = [one for one, why in others if why is None]
    return kept, list(dict.fromkeys(why for _, why in others if why is not None))


def _calibrate_sampler(
    reasoner: Reasoner,
    folder: Path,
    sampler: Sampler,
    rows: Sequence[Row],
    run: CalibrationRun,
    tell: Callable[[int], None],
) -> list[Calibration]:
    # Without perturbations all trajectories are one.
    budgets = (1,) if sampler.spec.kind == "deterministic" else run.budgets
    votes = [kind for kind in get_args(VoteKind) if reasoner.format.is_latent or kind != "centroid"]
    judged: dict[VoteKind, list[Judged]] = {vote: [] for vote in votes}
    for number, ballots in _drawn(reasoner, sampler, rows, max(budgets), run.seed, tell):
        truth = Decimal(rows[number].answer)
        for vote in votes:
            judged[vote] += judged_votes(number, ballots, truth, budgets, vote)
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
    if questions < FEWEST_QUESTIONS:
        raise InputError(
            f"{spec} gives an answer that can be read to {questions} questions only; calibrating "
            f"needs {FEWEST_QUESTIONS}",
            param="samplers",
        )
    # In the order of the data, so that the folds are the same however the questions were batched.
    judged = sorted(judged, key=lambda one: one.question)
    is_right = np.array([one.is_right for one in judged], dtype=np.float64)
    shares, weights = np.array([one.evidence.share for one in judged]), question_weights(judged)
    return Calibration(
        sampler=str(spec),
        vote=vote,
        sampler_fingerprint=digest,
        coefficients=fit(judged, budgets),
        budgets=budgets,
        ece=expected_calibration_error(out_of_fold(judged, budgets), is_right, weights),
        share_ece=expected_calibration_error(shares, is_right, weights),
        questions=questions,
        data=run.data if run.data == HELD_OUT else Path(run.data).name,
        seed=run.seed,
    )


def _drawn(
    reasoner: Reasoner,
    sampler: Sampler,
    rows: Sequence[Row],
    budget: int,
    seed: int,
    tell: Callable[[int], None],
) -> Iterator[tuple[int, list[Ballot]]]:
    """Draw the deterministic trajectory and the samples of every question, the shortest first."""
    prompts = [_prompt(reasoner, row, number) for number, row in enumerate(rows)]
    order = sorted(range(len(rows)), key=lambda number: len(prompts[number]))
    indices = (DETERMINISTIC, *range(budget))
    for first in range(0, len(order), _QUESTIONS_AT_ONCE):
        numbers = order[first : first + _QUESTIONS_AT_ONCE]
        asks = [Ask(prompts[n], derive_seed(seed, "calibrate", n), indices) for n in numbers]
        for number, done in zip(numbers, rollout(reasoner, sampler, asks), strict=True):
            yield number, ballots_of(done)
        tell(first + len(numbers))


def _prompt(reasoner: Reasoner, row: Row, number: int) -> tuple[int, ...]:
    try:
        return reasoner.encode(row.question)
    except InputError as error:
        raise InputError(f"question {number + 1} of the data: {error}", param="data") from error
