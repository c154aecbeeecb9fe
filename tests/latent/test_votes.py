import math
from dataclasses import replace

import pytest

from latent.errors import InputError
from latent.trajectory import IMPOSSIBLE, Trajectory
from latent.votes import VoteKind, parse_vote, tally
from tests.trajectories import trajectory


def voters(
    *cast: tuple[int | None, float], thoughts: list[list[float]] | None = None
) -> list[Trajectory]:
    return [
        trajectory(index, answer, confidence, None if thoughts is None else thoughts[index])
        for index, (answer, confidence) in enumerate(cast)
    ]


def test_majority_counts() -> None:
    result = tally(voters((7, 0.1), (8, 0.9), (7, 0.3)))
    assert result.winner.answer == 7
    assert result.winner.votes == 2
    assert result.winner.share == pytest.approx(2 / 3)
    assert result.winner.confidence == pytest.approx(0.2)
    assert result.winner.trajectories == (0, 2)
    assert [candidate.answer for candidate in result.candidates] == [7, 8]


def test_confidence_weighs() -> None:
    result = tally(voters((7, 0.1), (8, 0.9), (7, 0.3)), "confidence")
    assert result.winner.answer == 8
    assert result.winner.share == pytest.approx(0.9 / 1.3)


def test_best_takes_the_surest_trajectory() -> None:
    result = tally(voters((7, 0.6), (8, 0.7), (7, 0.6)), "best")
    assert result.winner.answer == 8
    assert result.winner.share == pytest.approx(0.7 / 1.3)


def test_centroid_takes_the_trajectory_nearest_to_the_robust_centre() -> None:
    thoughts = [[0.0, 0.0], [0.1, 0.0], [0.0, 0.1], [0.04, 0.04], [50.0, 50.0]]
    cast = voters((1, 0.9), (2, 0.9), (3, 0.9), (4, 0.1), (5, 0.9), thoughts=thoughts)
    result = tally(cast, "centroid")
    assert result.winner.answer == 4
    assert result.candidates[-1].answer == 5, "an outlier must not drag the centre"
    assert sum(candidate.share for candidate in result.candidates) == pytest.approx(1.0)


def test_centroid_without_thoughts_is_refused() -> None:
    with pytest.raises(InputError, match="final thoughts"):
        tally(voters((1, 0.5), (2, 0.5)), "centroid")


def test_the_likelihood_vote_takes_the_answer_with_the_likeliest_chain() -> None:
    cast = voters((7, 0.9), (7, 0.9), (8, 0.1), (7, 0.9), (8, 0.1))
    chains = (0.2, 0.1, 0.5, 0.2, 0.01)
    cast = [
        replace(each, chain_logprob=math.log(chain))
        for each, chain in zip(cast, chains, strict=True)
    ]
    result = tally(cast, "likelihood")
    assert result.winner.answer == 8
    assert result.winner.likelihood == pytest.approx(0.5)
    assert result.winner.share == pytest.approx(0.5 / 0.7), "drawing a chain twice adds nothing"
    assert tally(cast).winner.likelihood == pytest.approx(0.2)


def test_without_the_probability_of_each_chain_there_is_no_likelihood() -> None:
    cast = [replace(trajectory(0, 7), chain_logprob=-1.0), trajectory(1, 7)]
    assert tally(cast).winner.likelihood is None
    with pytest.raises(InputError, match="needs reasoning that can be read"):
        tally(cast, "likelihood")


def test_chains_whose_probability_is_no_float_are_compared_all_the_same() -> None:
    cast = [
        replace(trajectory(n, answer), chain_logprob=chain)
        for n, (answer, chain) in enumerate([(7, -900.0), (7, -910.0), (8, -800.0), (9, -801.0)])
    ]
    result = tally(cast, "likelihood")
    assert [candidate.answer for candidate in result.candidates] == [8, 9, 7]
    assert result.winner.share == pytest.approx(1 / (1 + math.exp(-1)))
    lost = [replace(each, chain_logprob=2 * IMPOSSIBLE) for each in cast[:2]] + cast[2:3]
    assert tally(lost, "likelihood").winner.share == 1.0


def test_a_chain_without_an_answer_takes_no_share_of_the_likelihood() -> None:
    chains = [(None, -2.0), (7, -800.0), (7, -800.0), (8, -790.0)]
    cast = [
        replace(trajectory(n, answer), chain_logprob=chain)
        for n, (answer, chain) in enumerate(chains)
    ]
    result = tally(cast, "likelihood")
    assert [candidate.answer for candidate in result.candidates] == [8, 7, None]
    assert result.winner.share == pytest.approx(1 / (1 + math.exp(-10)))
    assert tally(cast[:1], "likelihood").winner.share == 1.0


@pytest.mark.parametrize("kind", ["majority", "confidence", "best"])
def test_an_unparsable_answer_is_counted_but_wins_only_alone(kind: VoteKind) -> None:
    result = tally(voters((None, 0.9), (None, 0.9), (3, 0.1)), kind)
    assert result.winner.answer == 3
    assert result.candidates[1].answer is None
    assert result.candidates[1].votes == 2
    assert tally(voters((None, 0.9), (None, 0.5)), kind).winner.answer is None


def test_ties_go_to_votes_then_confidence_then_the_lowest_index() -> None:
    assert tally(voters((1, 0.5), (2, 0.6))).winner.answer == 2
    assert tally(voters((5, 0.5), (2, 0.5))).winner.answer == 5
    assert tally(voters((1, 0.8), (2, 0.4), (2, 0.4)), "confidence").winner.answer == 2


def test_the_order_of_arrival_does_not_matter() -> None:
    cast = voters((1, 0.3), (2, 0.4), (1, 0.2), (3, 0.9), (2, 0.4))
    assert tally(cast) == tally(cast[::-1])


def test_zero_confidence_everywhere_falls_back_to_counting_shares() -> None:
    result = tally(voters((1, 0.0), (1, 0.0), (2, 0.0)), "confidence")
    assert result.winner.answer == 1
    assert result.winner.share == pytest.approx(2 / 3)


def test_a_vote_is_named_or_refused() -> None:
    assert parse_vote("best") == "best"
    with pytest.raises(InputError, match="majority, confidence, best, centroid"):
        parse_vote("loudest")
    with pytest.raises(InputError, match="at least one trajectory"):
        tally([])


def test_verifier_adds_up_the_scores_of_an_answer() -> None:
    scores = (0.5, 0.25, 2.0)
    cast = [
        replace(each, score=score)
        for each, score in zip(voters((7, 0.9), (7, 0.9), (8, 0.1)), scores, strict=True)
    ]
    result = tally(cast, "verifier")
    assert [candidate.answer for candidate in result.candidates] == [8, 7]
    assert result.winner.share == pytest.approx(2.0 / 2.75)


def test_verifier_without_scores_is_refused() -> None:
    with pytest.raises(InputError, match="scores"):
        tally(voters((1, 0.5), (2, 0.5)), "verifier")
