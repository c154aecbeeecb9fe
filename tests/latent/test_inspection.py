"""Paths and readings of thoughts, against numbers worked out by hand or by the vocabulary head."""

import pytest
import torch

from latent.inspection import find_paths, read_thoughts
from latent.rollout import Ask, rollout
from tests.reasoners import QUESTIONS, make_reasoner


def test_thoughts_in_a_plane_keep_their_distances() -> None:
    generator = torch.Generator().manual_seed(0)
    flat = torch.randn(5, 3, 2, generator=generator, dtype=torch.float64)
    axes, _ = torch.linalg.qr(torch.randn(8, 2, generator=generator, dtype=torch.float64))
    paths = find_paths(flat @ axes.T + 3.0)
    torch.testing.assert_close(
        torch.cdist(paths.points.reshape(15, 2), paths.points.reshape(15, 2)),
        torch.cdist(flat.reshape(15, 2), flat.reshape(15, 2)),
    )
    assert sum(paths.explained) == pytest.approx(1.0)
    assert paths.explained[0] >= paths.explained[1]
    assert (paths.points[0, -1] >= paths.points[0, 0]).all()


def test_the_median_is_of_the_sampled_trajectories_and_ignores_an_outlier() -> None:
    thoughts = torch.zeros(6, 2, 4)
    thoughts[:, 1, 0] = 1.0  # all go the same way
    thoughts[0, :, 1] = 50.0  # but the deterministic one, which has no part in it
    thoughts[5, :, 2] = 9.0
    paths = find_paths(thoughts)
    torch.testing.assert_close(paths.median, paths.points[1], atol=1e-3, rtol=0)


def test_a_single_thought_has_a_place_and_no_variance() -> None:
    paths = find_paths(torch.ones(1, 1, 4))
    assert paths.points.tolist() == [[[0.0, 0.0]]]
    assert paths.explained == (0.0, 0.0)


@pytest.mark.parametrize("kind", ["coconut", "codi"])
def test_a_reading_is_what_the_vocabulary_head_says_of_the_state(kind: str) -> None:
    reasoner = make_reasoner(kind)
    ask = Ask(reasoner.encode(QUESTIONS[0]), 3, (-1, 0, 1))
    kept = rollout(
        reasoner, reasoner.sampler("gaussian:1.0"), [ask], keep_thoughts=True, keep_states=True
    )[0]
    assert kept.states is not None
    assert kept.contexts is not None
    torch.testing.assert_close(reasoner.feedback(kept.states[1]), kept.contexts[1])
    read = read_thoughts(reasoner, kept.states, 2)
    assert [len(each) for each in read] == [reasoner.format.thoughts] * 3
    likely = reasoner.logits(kept.states[2]).softmax(-1)
    for thought, tokens in enumerate(read[2]):
        best, second = likely[thought].topk(2).values.tolist()
        assert [token.probability for token in tokens] == pytest.approx([best, second])
        assert tokens[0].token == reasoner.tokenizer.decode([int(likely[thought].argmax())])
