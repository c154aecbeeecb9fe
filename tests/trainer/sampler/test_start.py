"""Where the training of a sampler starts: principal directions, and σ from the vocabulary head."""

import pytest
import torch

from latent.errors import InputError
from latent.samplers import GaussianThoughtSampler
from tests.reasoners import make_reasoner
from tests.trainer.sampler.toys import toy_questions
from trainer.sampler.config import SamplerConfig
from trainer.sampler.episodes import ReasonerEnvironment
from trainer.sampler.start import fit_spread, principal_directions, start_heads


def test_principal_directions_are_as_long_as_the_spread_along_them():
    torch.manual_seed(0)
    spread = torch.tensor([0.5, 4.0, 0.0, 2.0]).double()
    contexts = torch.randn(2000, 5, 4).double() * spread + 7
    found = principal_directions(contexts, 2)
    torch.testing.assert_close(
        found.norm(dim=1), torch.tensor([4.0, 2.0]).double(), rtol=0.03, atol=0
    )
    assert found.abs().argmax(1).tolist() == [1, 3]
    for count in (4, 5):  # one has no spread; there are 4 dimensions
        with pytest.raises(InputError, match=f"fewer than {count} directions"):
            principal_directions(contexts, count)


def test_the_fitted_variance_is_the_mean_of_those_with_like_contexts():
    torch.manual_seed(0)
    heads = GaussianThoughtSampler(8, log_std_floor=-6.0, directions=2)
    side = torch.randint(2, (4000,))  # what the context tells
    contexts = 0.1 * (torch.randn(4000, 8) * 0.1 + 2.0 * side[:, None])
    # Half of the states of one side are certain: no context tells which.
    certain = (torch.rand(4000) < 0.5)[:, None]
    variances = torch.where(
        (side == 1)[:, None], torch.tensor([0.5, 0.02]), torch.tensor([0.0, 0.2])
    )
    variances = torch.where(certain & (side == 1)[:, None], 0.0, variances)
    fit_spread(heads, contexts, variances, seed=3)
    with torch.no_grad():
        mean, log_std = heads(contexts)
    assert not mean.any()
    fitted = (2.0 * log_std).exp()
    torch.testing.assert_close(
        fitted[side == 1].mean(0), torch.tensor([0.25, 0.01]), rtol=0.15, atol=0.0
    )
    torch.testing.assert_close(fitted[side == 0][:, 1].mean(), torch.tensor(0.2), rtol=0.1, atol=0)
    assert fitted[side == 0][:, 0].max() < 0.001


def test_the_spread_is_that_of_the_embeddings_under_the_vocabulary_head():
    reasoner = make_reasoner("codi")
    questions = toy_questions(3, [1])
    directions = torch.zeros(2, reasoner.width, dtype=torch.float64)
    directions[0, 4], directions[1, 7] = 0.5, 2.0
    spread = ReasonerEnvironment(reasoner).token_spread(questions, directions)
    thoughts = reasoner.format.thoughts
    assert spread.contexts.shape == (3 * thoughts, reasoner.width)
    # The first thought is made from the prompt's last state.
    (prefix,) = reasoner.prefill([reasoner.encode(questions[0].question)])
    p = reasoner.logits(prefix.hidden[None]).softmax(-1)[0]
    rows = reasoner.embed(torch.arange(reasoner.vocabulary_size))[:, [4, 7]] / torch.tensor(
        [0.5, 2.0]
    )
    mean = (p[:, None] * rows).sum(0)
    expected = (p[:, None] * (rows - mean).square()).sum(0)
    torch.testing.assert_close(spread.variances[0], expected)
    torch.testing.assert_close(spread.contexts[0], reasoner.feedback(prefix.hidden[None])[0])


def test_a_written_result_has_no_spread(monkeypatch):
    reasoner = make_reasoner("codi")
    real = reasoner.feedback
    environment = ReasonerEnvironment(reasoner)
    directions = torch.eye(2, reasoner.width, dtype=torch.float64)
    questions = toy_questions(1, [1])
    assert environment.token_spread(questions, directions).variances.all()
    calls = []

    def replaced(hidden, masks=None):
        calls.append(len(hidden))
        # While thinking, one row at a time, the second thought is not the projection's.
        return real(hidden, masks) + (1.0 if len(calls) == 2 else 0.0)

    monkeypatch.setattr(reasoner, "feedback", replaced)
    variances = environment.token_spread(questions, directions).variances
    assert not variances[1].any()
    assert variances[[0, 2]].all()


@pytest.mark.parametrize("is_int8", [False, True])
def test_the_heads_start_at_the_fitted_spread_times_the_bias(is_int8):
    dtype = torch.float32 if is_int8 else torch.float64
    environment = ReasonerEnvironment(make_reasoner("codi", dtype=dtype, is_int8=is_int8))
    questions = toy_questions(8, [1])
    started = []
    for bias in (0.0, -0.7):
        config = SamplerConfig(
            directions=2, start="vocabulary", log_std_floor=-8, log_std_bias=bias
        )
        torch.manual_seed(0)
        heads = environment.new_heads(config.log_std_bias, config.log_std_floor, config.directions)
        start_heads(heads, environment, questions, config)
        with torch.no_grad():
            started.append(heads(environment.contexts(questions))[1])
    torch.testing.assert_close(started[1], started[0] - 0.7)
    assert started[0].std() > 0


def test_a_start_from_the_vocabulary_needs_directions():
    with pytest.raises(InputError, match="start must be constant unless directions are given"):
        SamplerConfig(start="vocabulary")
