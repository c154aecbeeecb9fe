"""Calibrates a panel: rolls out its members on held-out questions, fits weights and probability.

The model that is fitted is `latent.panel_calibration`, the file `latent.panel_file`.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import product

import numpy as np
from numpy.typing import NDArray

from latent.answers import same_answer
from latent.noise import derive_seed
from latent.panel import SPLITS, Panel, Place, as_cast, member_votes, panel_tally
from latent.panel_calibration import MemberWeights, PanelCalibration, design
from latent.panel_file import PanelFiles, member_digests, write_panel_calibrations
from latent.reasoner_panel import ReasonerPanel
from latent.rollout import Ask, rollout
from latent.trajectory import Trajectory
from latent.votes import VoteKind
from trainer.data.sources import Row
from trainer.evaluation.calibration import CalibrationRun, encoded, held_out, warn_of_few
from trainer.evaluation.calibration_fit import question_weights
from trainer.evaluation.risk import RiskCurve, risk_curve
from trainer.evaluation.statistics import Floats, expected_calibration_error
from trainer.runs.progress import Progress

__all__ = [
    "Choice",
    "calibrate_panel",
    "draw_places",
    "fit_choices",
    "fit_with_ceiling",
    "probabilities",
]

_CHUNK_SIZE = 64
_FOLDS = 5
_PRIOR = 1.0  # variance of the normal prior on every weight of a feature of unit scale
_ITERATIONS = 100
_SMALLEST_STEP = 1e-9
_ROUNDS = 50
_BISECTIONS = 40
_SMALLEST_CHANGE = 1e-4  # of the ceiling
_WIDTH = len(MemberWeights.__annotations__)
_NAMES = tuple(MemberWeights.__annotations__)

Drawn = dict[Place, Trajectory]  # one question's


@dataclass(frozen=True)
class Choice:
    """A panel's vote on a held-out question: its candidates, of which one or none is right."""

    question: int
    features: Floats  # (candidates + 1, features), the last row is "none of them is right"
    right: int  # row
    share: float  # of the winner, with added shares
    is_share_right: bool
    budget: int
    is_inside: bool  # the question is of the first data


def calibrate_panel(
    loaded: ReasonerPanel, files: PanelFiles, run: CalibrationRun
) -> tuple[list[PanelCalibration], RiskCurve]:
    """Fit every vote that the members allow, from the same trajectories, and write the file.

    Also returns the risk–coverage curve of the majority vote.
    """
    data = held_out(run)
    rows, panel = data.rows, loaded.panel
    prefixes = _prefixes(panel, run.budgets)
    with Progress(len(rows) * len(panel.members), 0, "calibrating") as progress:
        warn_of_few(data, progress)
        wanted = {place for prefix in prefixes for place in prefix}
        drawn = draw_places(loaded, rows, wanted, run.seed, progress)
    formats = [reasoner.format for reasoner in loaded.reasoners]
    votes = [vote for vote in formats[0].votes if all(vote in each.votes for each in formats)]
    fitted = []
    for vote in votes:
        choices = [
            choice
            for number, row in enumerate(rows)
            for choice in _choices(
                panel,
                number,
                drawn[number],
                Decimal(row.answer),
                vote,
                prefixes,
                novelty=data.novelties[number],
                is_inside=number < data.inside,
            )
        ]
        fitted.append(_calibration(panel, run, vote, choices))
    digests = member_digests(files, [reasoner.fingerprint for reasoner in loaded.reasoners])
    write_panel_calibrations(
        run.out, digests, [calibration for calibration, _ in fitted], data.reference
    )
    return [calibration for calibration, _ in fitted], fitted[0][1]


def _prefixes(panel: Panel, budgets: Sequence[int]) -> list[tuple[Place, ...]]:
    """Sets of trajectories to vote with: the budgets under both splits, and where one may end early."""
    found: dict[frozenset[Place], tuple[Place, ...]] = {}
    for split, budget in product(SPLITS, budgets):
        way = replace(panel, split=split)
        places = way.places(budget)
        for end in way.stages(places):
            found.setdefault(frozenset(places[:end]), places[:end])
    return list(found.values())


def draw_places(
    loaded: ReasonerPanel,
    rows: Sequence[Row],
    wanted: Collection[Place],
    seed: int,
    progress: Progress,
) -> list[Drawn]:
    """Draw these trajectories of every question; each member's questions shortest first."""
    drawn: list[Drawn] = [{} for _ in rows]
    done = 0
    for number, reasoner in enumerate(loaded.reasoners):
        prompts = [encoded(reasoner, row, place) for place, row in enumerate(rows)]
        order = sorted(range(len(rows)), key=lambda question: len(prompts[question]))
        indices = tuple(sorted(place.index for place in wanted if place.member == number))
        for first in range(0, len(order), _CHUNK_SIZE):
            chunk = order[first : first + _CHUNK_SIZE]
            asks = [Ask(prompts[n], derive_seed(seed, "calibrate", n), indices) for n in chunk]
            results = rollout(reasoner, loaded.samplers[number], asks)
            for question, result in zip(chunk, results, strict=True):
                drawn[question] |= {Place(number, each.index): each for each in result.trajectories}
            done += len(chunk)
            progress.show(done, {"member": loaded.panel.labels[number]})
    return drawn


def _choices(
    panel: Panel,
    question: int,
    drawn: Drawn,
    truth: Decimal,
    vote: VoteKind,
    prefixes: Sequence[Sequence[Place]],
    *,
    novelty: float,
    is_inside: bool,
) -> Iterator[Choice]:
    """Judge the vote of each prefix; those in which no answer can be read are left out."""
    for prefix in prefixes:
        cast = [
            as_cast(drawn[place], position, panel.labels[place.member])
            for position, place in enumerate(prefix)
        ]
        winner = panel_tally(panel, cast, vote).winner
        if winner.answer is None:
            continue
        own = {number: each for number, (each, _) in member_votes(panel, cast, vote).items()}
        answers = list(dict.fromkeys(answer for each in own.values() for answer in each.candidates))
        right = (n for n, answer in enumerate(answers) if same_answer(answer, truth))
        yield Choice(
            question,
            design(answers, own, len(panel.members), novelty),
            next(right, len(answers)),
            winner.share,
            same_answer(winner.answer, truth),
            len(prefix),
            is_inside,
        )


def _calibration(
    panel: Panel, run: CalibrationRun, vote: VoteKind, choices: Sequence[Choice]
) -> tuple[PanelCalibration, RiskCurve]:
    theta, ceiling = fit_with_ceiling(choices)
    weights = question_weights(choices)
    right, found = _out_of_fold(choices)
    shares = np.array([choice.share for choice in choices])
    is_share_right = np.array([float(choice.is_share_right) for choice in choices])
    is_inside = np.array([choice.is_inside for choice in choices])

    def error(values: Floats, are_right: Floats, where: NDArray[np.bool_]) -> float:
        return expected_calibration_error(values[where], are_right[where], weights[where])

    calibration = PanelCalibration(
        vote=vote,
        weights=tuple(
            MemberWeights(*theta[_WIDTH * number : _WIDTH * (number + 1)].tolist())
            for number in range(len(panel.members))
        ),
        none=float(theta[-2]),
        novel=float(theta[-1]),
        ceiling=ceiling,
        budgets=(run.budgets[0], run.budgets[-1]),
        ece=error(found, right, is_inside),
        ece_outside=None if is_inside.all() else error(found, right, ~is_inside),
        share_ece=error(shares, is_share_right, is_inside),
        questions=len({choice.question for choice in choices}),
        data=run.data_name,
        seed=run.seed,
    )
    is_last = np.array([choice.budget == run.budgets[-1] for choice in choices])
    return calibration, risk_curve(found[is_last], right[is_last], is_inside[is_last])


def _out_of_fold(choices: Sequence[Choice]) -> tuple[Floats, Floats]:
    """Whether each winner is right and its cross-validated probability, whole questions in a fold."""
    _, place = np.unique([choice.question for choice in choices], return_inverse=True)
    right, found = np.zeros(len(choices)), np.zeros(len(choices))
    for fold in range(_FOLDS):
        rest = [one for one, of in zip(choices, place % _FOLDS, strict=True) if of != fold]
        theta, ceiling = fit_with_ceiling(rest)
        for number in np.flatnonzero(place % _FOLDS == fold).tolist():
            each = ceiling * probabilities(choices[number].features, theta)[:-1]
            winner = int(each.argmax())
            right[number], found[number] = winner == choices[number].right, each[winner]
    return right, found


def probabilities(features: Floats, theta: Floats) -> Floats:
    """Probability of each row: softmax of its log-odds."""
    logits = features @ theta
    odds = np.exp(logits - logits.max())
    return np.asarray(odds / odds.sum())


def fit_with_ceiling(choices: Sequence[Choice]) -> tuple[Floats, float]:
    """Weights of the conditional logit, and the ceiling of its probabilities.

    On a share 1 - ceiling of the questions all candidates are wrong, whatever the votes say. Which of
    the questions without a right candidate these are is estimated; then each is fitted, given the other.
    """
    weights = question_weights(choices)
    is_none = np.array([choice.right == len(choice.features) - 1 for choice in choices])
    theta, ceiling = fit_choices(choices), 1.0
    for _ in range(_ROUNDS):
        none = np.array([probabilities(choice.features, theta)[-1] for choice in choices])
        before, ceiling = ceiling, _fit_ceiling(none, is_none, weights)
        if abs(ceiling - before) < _SMALLEST_CHANGE:
            break
        # Probability that the votes tell of a question.
        told = np.where(is_none, ceiling * none / (1 - ceiling * (1 - none)), 1.0)
        theta = fit_choices(choices, told, theta)
    return theta, ceiling


def _fit_ceiling(none: Floats, is_none: NDArray[np.bool_], weights: Floats) -> float:
    """Most likely ceiling, given the probabilities of "none of them is right" below it.

    The likelihood is concave in the ceiling, so its slope is bisected.
    """
    right, some = weights[~is_none].sum(), 1 - none[is_none]
    low, high = 0.0, 1.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        slope = right / middle - weights[is_none] @ (some / (1 - middle * some))
        low, high = (middle, high) if slope > 0 else (low, middle)
    return high


def fit_choices(
    choices: Sequence[Choice], told: Floats | None = None, start: Floats | None = None
) -> Floats:
    """Maximum a posteriori weights of the conditional logit, by projected Newton steps: (features,).

    Each question has weight 1, however often it was voted on, times `told` if that is given; the
    weights in `MONOTONE` stay ≥ 0. Starts from `start`, if given, instead of zeros.
    """
    rows = np.concatenate([choice.features for choice in choices])  # (R, features)
    sizes = np.array([len(choice.features) for choice in choices])
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    group = np.repeat(np.arange(len(choices)), sizes)
    weights = question_weights(choices) * (1.0 if told is None else told)
    right = rows[starts + np.array([choice.right for choice in choices])]
    scale = rows.std(0)
    scale[scale < _SMALLEST_STEP] = 1.0
    rows, right = rows / scale, right / scale
    is_monotone = _is_monotone(rows.shape[1])

    def log_probabilities(theta: Floats) -> Floats:
        logits = rows @ theta
        top = np.maximum.reduceat(logits, starts)
        total = np.add.reduceat(np.exp(logits - top[group]), starts)
        return np.asarray(logits - (top + np.log(total))[group])

    def loss(theta: Floats) -> float:
        logits = rows @ theta
        normaliser = (logits - log_probabilities(theta))[starts]
        return float(weights @ (normaliser - right @ theta) + 0.5 * _PRIOR * theta @ theta)

    theta = np.zeros(rows.shape[1]) if start is None else start * scale
    for _ in range(_ITERATIONS):
        p = np.exp(log_probabilities(theta))
        means = np.add.reduceat(p[:, None] * rows, starts)  # (choices, features)
        gradient = weights @ (means - right) + _PRIOR * theta
        spread = (rows.T * (p * weights[group])) @ rows - (means.T * weights) @ means
        hessian = spread + _PRIOR * np.eye(len(theta))
        # A weight at its bound whose step would go below the bound is fixed in this iteration.
        free = np.flatnonzero(~(is_monotone & (theta <= 0) & (gradient > 0)))
        step = np.zeros_like(theta)
        step[free] = np.linalg.solve(hessian[np.ix_(free, free)], gradient[free])
        rate, before = 1.0, loss(theta)
        while (
            loss(_projected(theta - rate * step, is_monotone)) >= before and rate > _SMALLEST_STEP
        ):
            rate /= 2
        if np.abs(rate * step).max() < _SMALLEST_STEP:
            break
        theta = _projected(theta - rate * step, is_monotone)
    return np.asarray(theta / scale)


def _is_monotone(width: int) -> NDArray[np.bool_]:
    own = [name in MemberWeights.MONOTONE for name in _NAMES]
    return np.array([*(own * (width // _WIDTH)), False, True])  # the last two: none, novel


def _projected(theta: Floats, is_monotone: NDArray[np.bool_]) -> Floats:
    return np.where(is_monotone, np.maximum(theta, 0.0), theta)
