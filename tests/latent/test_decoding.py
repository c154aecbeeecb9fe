"""Which token a drawn number stands for."""

import pytest
import torch

from latent.decoding import _sample


@pytest.mark.parametrize("vocabulary", [5, 128, 300, 1024])
def test_a_token_is_drawn_where_the_sum_of_probabilities_reaches_the_number(
    vocabulary: int,
) -> None:
    generator = torch.Generator().manual_seed(vocabulary)
    logits = 4 * torch.randn(64, vocabulary, generator=generator, dtype=torch.float64)
    logits[:, ::3] = -torch.inf
    probabilities = logits.softmax(-1)
    drawn = torch.rand(64, 1, generator=generator, dtype=torch.float64)
    sums = probabilities.cumsum(-1)
    tokens = _sample(probabilities, drawn)
    assert torch.equal(tokens, (sums < drawn * sums[:, -1:]).sum(-1))
    assert (probabilities.gather(-1, tokens[:, None]) > 0).all()


def test_a_row_without_a_distribution_gets_the_first_token() -> None:
    probabilities = torch.full((2, 200), float("nan"))
    assert _sample(probabilities, torch.full((2, 1), 0.5, dtype=torch.float64)).tolist() == [0, 0]
