"""Stops of an adaptive budget, in this process and by their rules."""

from itertools import takewhile

import pytest

from latent.calibration import Calibrations
from latent.errors import InputError
from latent.familiarity import make_reference
from latent.reasoner import Reasoner
from latent.stopping import Stop, check_stop, checkpoints
from tests.calibrations import COEFFICIENTS, make_calibration
from tests.reasoners import make_counting_reasoner

QUESTION = "Tom has 17 apples and buys 20 more. How many are there?"


@pytest.fixture(scope="module")
def reasoner() -> Reasoner:
    """A random reasoner whose confidence grows with the share of the winner alone."""
    made = make_counting_reasoner()
    zero = dict.fromkeys(COEFFICIENTS.__dataclass_fields__, 0.0)
    plain = type(COEFFICIENTS)(**{**zero, "share_few": 1.0, "share_many": 1.0})
    reference, _ = make_reference([QUESTION, QUESTION])
    calibration = make_calibration(sampler="gaussian:0.1", coefficients=plain)
    made.__dict__["calibrations"] = Calibrations("f", (calibration,), reference)
    return made


def test_checkpoints_double_below_the_budget() -> None:
    assert list(checkpoints(4)) == []
    assert list(checkpoints(33)) == [4, 8, 16, 32]


@pytest.mark.parametrize("stop", [Stop("confidence", 0.52), Stop("certainty", 0.6)])
def test_a_stop_ends_at_the_first_checkpoint_that_reaches_it(
    reasoner: Reasoner, stop: Stop
) -> None:
    whole = reasoner.solve(QUESTION, budget=32, sampler="gaussian:0.1", seed=3)
    ended = reasoner.solve(QUESTION, budget=32, sampler="gaussian:0.1", seed=3, stop=stop)
    used = len(ended.trajectories)

    def is_short(count: int) -> bool:
        first = reasoner.solve(QUESTION, budget=count, sampler="gaussian:0.1", seed=3)
        return not stop.is_reached(first.tally, first.calibration, first.familiarity)

    short = list(takewhile(is_short, checkpoints(32)))
    assert used == ([*checkpoints(32), 32])[len(short)]
    assert ended.ended_by == (stop.kind if used < 32 else "budget")
    texts = [each.text for each in whole.trajectories]
    assert [each.text for each in ended.trajectories] == texts[:used]


def test_an_answer_below_the_asked_confidence_is_not_given(reasoner: Reasoner) -> None:
    plain = reasoner.solve(QUESTION, budget=8, sampler="gaussian:0.1", seed=3)
    assert plain.answer is not None
    held = reasoner.solve(
        QUESTION, budget=8, sampler="gaussian:0.1", seed=3, abstain_below=plain.confidence + 0.01
    )
    assert (held.answer, held.stop_reason) == (None, "abstained")
    assert (held.candidates, held.confidence) == (plain.candidates, plain.confidence)
    given = reasoner.solve(
        QUESTION, budget=8, sampler="gaussian:0.1", seed=3, abstain_below=plain.confidence
    )
    assert given.answer == plain.answer


@pytest.mark.parametrize(
    ("stop", "abstain_below", "vote", "said"),
    [
        (Stop("confidence", 0.9), None, "majority", r"stop\.confidence needs a calibrated"),
        (None, 0.5, "majority", "abstain_below needs a calibrated"),
        (None, 1.5, "majority", "abstain_below must be above 0 and below 1"),
        (Stop("certainty", 0.9), None, "best", "goes with the majority vote, not best"),
    ],
)
def test_what_a_model_or_a_vote_does_not_allow_is_refused(
    stop: Stop | None, abstain_below: float | None, vote: str, said: str
) -> None:
    with pytest.raises(InputError, match=said):
        check_stop("m", vote, stop, abstain_below, is_calibrated=False)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["confidence", "confidence:high", "certainty:0.4", "luck:0.9"])
def test_a_stop_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="stop"):
        Stop.parse(text)
    assert Stop.parse("confidence:0.9") == Stop("confidence", 0.9)
