"""One question's result, worked out by hand from trajectories and probes."""

import math
from dataclasses import replace
from decimal import Decimal

import pytest
import torch

from latent.calibration import evidence_of
from latent.errors import InputError, SpecError
from latent.exploration import Exploration, Heads, explore
from latent.familiarity import Familiarity
from latent.probing import Probe
from latent.trajectory import Trajectory
from latent.votes import tally
from tests.calibrations import make_calibration
from tests.trajectories import trajectory
from trainer.evaluation.config import EvaluationConfig, budgets_of, parse_samplers
from trainer.evaluation.records import Question, Record, judge

QUESTION = Question(17, prompt=(5, 6, 7), truth=Decimal(42), target=None, operations=3, seed=1)


def _record(samples: list[Trajectory]) -> Record:
    explored = Exploration(gain=1.25, gain_share=0.5, js=0.1)
    return judge(QUESTION, "gts", trajectory(-1, 41, 0.9), samples, explored, tokens=9, seconds=0.5)


def test_votes_uniqueness_and_correctness_are_recorded_at_every_budget() -> None:
    samples = [
        trajectory(0, 42, 0.2),
        trajectory(1, 7, 0.9),
        trajectory(2, 7, 0.5),
        trajectory(3, None, 0.9),
        trajectory(4, 42, 0.8),
    ]
    record = _record(samples)
    assert (record.truth, record.deterministic, record.deterministic_correct) == ("42", "41", False)
    assert record.correct == [0, 4]
    assert record.unique == {"1": 1, "2": 2, "4": 2, "5": 2}
    assert record.votes["majority"] == {
        "1": [1, 1.0, 0.2],
        "2": [0, 0.5, 0.9],  # one each: the surer one wins
        "4": [0, 0.5, 0.7],
        "5": [0, 0.4, 0.7],  # two each: 7 is surer (0.7) than 42 (0.5)
    }
    assert record.votes["confidence"]["5"] == [0, round(1.4 / 3.3, 6), 0.7]
    assert record.votes["best"]["5"][0] == 0
    assert "centroid" not in record.votes
    assert (record.trajectories, record.tokens, record.prompt_tokens) == (5, 9, 3)


def test_a_reasoner_with_thoughts_has_a_centroid_vote_too() -> None:
    samples = [
        trajectory(0, 7, 0.9, thought=[5.0, 0.0]),
        *(trajectory(n, 42, 0.1, thought=[0.0, 0.0]) for n in range(1, 4)),
    ]
    record = _record(samples)
    assert record.votes["centroid"]["4"][0] == 1
    assert record.votes["best"]["4"][0] == 0


def test_trajectories_with_scores_have_a_verifier_vote_too() -> None:
    samples = [trajectory(0, 7, 0.9), trajectory(1, 7, 0.9), trajectory(2, 42, 0.1)]
    assert "verifier" not in _record(samples).votes
    scored = [replace(each, score=score) for each, score in zip(samples, (1, 1, 6), strict=True)]
    assert _record(scored).votes["verifier"]["3"] == [1, 0.75, 0.1]


def test_trajectories_whose_chains_are_known_have_a_likelihood_vote_too() -> None:
    samples = [trajectory(0, 7, 0.9), trajectory(1, 7, 0.9), trajectory(2, 42, 0.1)]
    assert "likelihood" not in _record(samples).votes
    likely = [
        replace(each, chain_logprob=math.log(chance))
        for each, chance in zip(samples, (0.1, 0.2, 0.6), strict=True)
    ]
    assert _record(likely).votes["likelihood"]["3"] == [1, 0.75, 0.1]
    known = {"likelihood": make_calibration(vote="likelihood")}
    record = judge(
        QUESTION, "token:0.7", likely[0], likely, Exploration(), tokens=9, seconds=0.5,
        calibrations=known,
    )  # fmt: skip
    expected = known["likelihood"].probability(evidence_of(tally(likely, "likelihood")))
    assert record.confidences["likelihood"]["3"] == pytest.approx(expected, abs=1e-6)


def test_a_line_gives_the_same_record_back() -> None:
    record = _record([trajectory(0, 42, 1 / 3), trajectory(1, 7, 0.25)])
    assert record.to_line().endswith("\n")
    assert Record.from_line(record.to_line()) == record
    with pytest.raises(ValueError, match="Field required"):
        Record.from_line('{"sampler": "gts"}')


def test_a_number_that_is_not_finite_is_null() -> None:
    explored = Exploration(gain=math.inf, js=math.nan)
    record = judge(
        QUESTION,
        "gts",
        trajectory(-1, 1, 1),
        [trajectory(0, 1, 1)],
        explored,
        tokens=1,
        seconds=0.0,
    )
    assert record.gain is None
    assert record.js is None


def _probe(rows: list[list[float]], target: list[float]) -> Probe:
    """Make a probe from the first token's distributions and, per row, the second token's p."""
    first = torch.tensor(rows, dtype=torch.float64)
    p = torch.stack([first[:, 0], torch.tensor(target, dtype=torch.float64)], dim=1)
    return Probe(first.log(), p.log(), (1 - p).log())


def test_gain_and_shift_match_the_hand_worked_probe() -> None:
    probe = _probe([[0.5, 0.5], [0.8, 0.2], [0.2, 0.8]], [0.5, 0.9, 0.1])
    found = explore(probe)
    assert found.gain == pytest.approx(math.log(4))  # logit 0.8 − logit 0.5
    assert found.gain_share == 0.5  # log 4 > 0.5, −log 4 is not
    whole = [0.25, 0.72, 0.02]
    odds = [math.log(p / (1 - p)) for p in whole]
    assert found.gain_whole == pytest.approx(odds[1] - odds[0])
    # Both samples are equally far from (½, ½); by hand with m = (0.65, 0.35).
    shift = 0.5 * (
        0.8 * math.log(0.8 / 0.65)
        + 0.2 * math.log(0.2 / 0.35)
        + 0.5 * math.log(0.5 / 0.65)
        + 0.5 * math.log(0.5 / 0.35)
    )
    assert found.js == pytest.approx(shift)


def test_without_a_target_there_is_no_gain_and_with_heads_there_is_snr() -> None:
    probe = Probe(torch.full((3, 2), math.log(0.5), dtype=torch.float64), None, None)
    heads = Heads(
        mean=torch.tensor([[[3.0, 4.0]], [[0.0, 0.0]]]),  # (N 2, K 1, D 2): rms 5/√2 and 0
        std=torch.tensor([[[5.0, 5.0]], [[1.0, 7.0]]]),  # rms 5 and 5
    )
    found = explore(probe, heads)
    assert (found.gain, found.gain_whole, found.gain_share) == (None, None, None)
    assert found.js == pytest.approx(0.0, abs=1e-12)
    assert found.snr == pytest.approx([0.5 / math.sqrt(2)])
    assert found.sigma == pytest.approx([5.0])


def test_budgets_double_and_end_with_the_whole() -> None:
    assert budgets_of(1) == [1]
    assert budgets_of(8) == [1, 2, 4, 8]
    assert budgets_of(12) == [1, 2, 4, 8, 12]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no sampler is named"),
        ("gts,magic", "unknown sampler 'magic'"),
        ("gaussian,gaussian:1", "'gaussian:1.0' is named twice"),
    ],
)
def test_samplers_that_make_no_sense_are_refused(text: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        parse_samplers(text)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"budget": 1}, "budget must be at least 2"),
        ({"limit": 0}, "limit must be at least 1"),
        ({"seed": -1}, "seed must be between"),
        ({"lanes": 0}, "lanes must be at least 1"),
    ],
)
def test_options_that_make_no_sense_are_refused(changed: dict[str, int], said: str) -> None:
    with pytest.raises(InputError, match=said):
        EvaluationConfig("m", "d", parse_samplers("gts"), **changed)


def test_the_served_confidence_and_the_certainty_are_recorded_with_a_calibration() -> None:
    samples = [trajectory(n, answer) for n, answer in enumerate((42, 42, 42, 7))]
    known = replace(QUESTION, familiarity=Familiarity(novelty=1.0, percentile=0.0))
    record = judge(
        known,
        "gaussian:1.0",
        trajectory(-1, 41),
        samples,
        Exploration(),
        tokens=9,
        seconds=0.5,
        calibrations={"majority": make_calibration()},
    )
    # A new question with 3 of 4 votes: log-odds −3 + 0.5 · log 2, as tests/calibrations.py has them.
    expected = 1 / (1 + math.exp(3 - 0.5 * math.log(2)))
    assert record.served["4"] == [pytest.approx(expected, abs=1e-6), pytest.approx(26 / 32)]
    assert Record.from_line(record.to_line()) == record
    assert _record(samples).served == {}


def test_the_calibrated_confidence_of_another_vote_is_recorded_beside_the_majoritys() -> None:
    scores = (1.0, 1.0, 1.0, 5.0)
    samples = [
        replace(trajectory(n, answer), score=score)
        for n, (answer, score) in enumerate(zip((42, 42, 42, 7), scores, strict=True))
    ]
    record = judge(
        QUESTION,
        "gaussian:1.0",
        trajectory(-1, 41),
        samples,
        Exploration(),
        tokens=9,
        seconds=0.5,
        calibrations={"verifier": make_calibration(vote="verifier", verifier_fingerprint="f")},
    )
    assert record.votes["verifier"]["4"][1] == 0.625, "7 wins with 5 of 8"
    # log₂4 is half way to log₂16; (4 · 5/8 + 1) of (4 + 2).
    expected = 1 / (1 + math.exp(1 - 0.25 + 0.25 / 4 - 1.5 * math.log(3.5 / 2.5)))
    assert record.confidences["verifier"]["4"] == pytest.approx(expected, abs=1e-6)
    assert Record.from_line(record.to_line()) == record
    assert _record(samples).confidences == {}
