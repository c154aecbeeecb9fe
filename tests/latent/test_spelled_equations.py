"""The calculator for thoughts: what they read as, and the results that are put in their places."""

from collections.abc import Sequence

import torch
from torch import Tensor

from latent.batch import Ask
from latent.calculator import Calculator
from latent.equations import are_equations_true
from latent.rollout import rollout
from latent.spelled_equations import SpelledEquations, nearest_sign
from tests.latent.test_calculator import CPU, Characters
from tests.reasoners import QUESTIONS, make_spelling_reasoner, tokenizer
from tests.samplers import make_sampler

TABLE = torch.randn(128, 24, generator=torch.Generator().manual_seed(0))


def embed(tokens: Tensor) -> Tensor:
    return TABLE[tokens]


def think(chains: Sequence[str], noise: float = 0.0) -> list[str]:
    """What rows of thoughts read as, if the reasoner makes these embeddings, with noise on all."""
    equations = SpelledEquations(Calculator(Characters(), 128, CPU), embed, len(chains))
    torch.manual_seed(1)
    read = [""] * len(chains)
    for column in zip(*chains, strict=True):
        contexts = embed(torch.tensor([ord(sign) for sign in column]))
        thoughts = equations.correct(contexts + noise * torch.randn_like(contexts))
        thoughts = thoughts + noise * torch.randn_like(contexts)
        equations.read(thoughts)
        found = nearest_sign(thoughts, embed(torch.arange(128)))
        read = [text + chr(token) for text, token in zip(read, found.tolist(), strict=True)]
    return read


def test_a_thought_reads_as_the_sign_with_the_nearest_embedding() -> None:
    signs = embed(torch.tensor([ord(sign) for sign in "0123456789"]))
    between = 0.6 * signs[3] + 0.4 * signs[8]
    assert nearest_sign(torch.stack((signs[7], between, 5 * signs[2])), signs).tolist() == [7, 3, 2]


def test_results_stand_where_the_thoughts_would_have_been() -> None:
    assert think(["12+5=99\n99-3=00\n", "7*8=00\n\n\n\n\n\n\n\n\n\n"]) == [
        "12+5=17\n99-3=96\n",
        "7*8=56\n\n\n\n\n\n\n\n\n\n",
    ]


def test_a_result_is_not_lengthened_by_what_is_thought_after_it() -> None:
    assert think(["6-2=44\n"]) == ["6-2=4\n\n"]


def test_noise_that_does_not_change_what_is_read_does_not_change_the_result() -> None:
    assert think(["12+5=99\n99-3=00\n"], noise=0.2) == ["12+5=17\n99-3=96\n"]


def test_rows_of_thoughts_are_read_independently() -> None:
    chains = ["12+5=99\n", "3*3=0\n\n\n", "..=+=9\n\n", "9/2=000\n"]
    assert think(chains) == [think([chain])[0] for chain in chains]


def test_a_latent_reasoner_with_a_calculator_thinks_no_false_equation() -> None:
    """A random reasoner whose thoughts are signs, read through the noise that is added to them."""
    false = {}
    for calculator in (False, True):
        reasoner = make_spelling_reasoner(calculator=calculator)
        asks = [Ask(reasoner.encode(q), seed, tuple(range(64))) for seed, q in enumerate(QUESTIONS)]
        sampler = make_sampler("gaussian:0.1")
        done = rollout(reasoner, sampler, asks, keep_thoughts=True)
        texts = []
        for one in done:
            assert one.contexts is not None
            assert one.perturbations is not None
            thoughts = one.contexts + one.perturbations
            ids = reasoner.calculator.sign_ids
            tokens = ids[nearest_sign(thoughts, reasoner.embed(ids))].tolist()
            # The last thoughts may cut a result.
            texts += [tokenizer().decode(row).rpartition("\n")[0] for row in tokens]
        false[calculator] = sum(not are_equations_true(text) for text in texts)
    assert false[False] > 3
    assert false[True] == 0
