"""Thoughts and decoding never wait for the host: they run on the `meta` device, which has no data.

There any `.item()`, any number of a CPU tensor mixed in and any shape that depends on data raises.
"""

from typing import Any

import pytest
import torch

from latent.batch import Ask, LaneBatch
from latent.decoding import Texts, feed, next_tokens
from latent.noise import Address, LaneNoise, Site
from latent.reasoner import Reasoner
from latent.spelled_equations import SignHead
from latent.thinking import think
from tests.reasoners import make_reasoner
from tests.samplers import make_sampler

PROMPTS = (tuple(range(5, 16)), tuple(range(40)), tuple(range(7, 20)))  # of two length buckets


def on_meta(kind: str, architecture: str, **changes: Any) -> Reasoner:
    reasoner = make_reasoner(kind, architecture, dtype=torch.float32, **changes)
    reasoner._model.to("meta")
    reasoner._feedback.to("meta")
    vars(reasoner).pop("calculator", None)  # made anew, on this device
    if reasoner.sign_head is not None:
        head, ids = reasoner._model.get_output_embeddings(), reasoner.calculator.sign_ids
        reasoner.sign_head = SignHead.of(head, ids)
    return reasoner


def batch_of(reasoner: Reasoner, spec: str) -> LaneBatch:
    sampler = make_sampler(spec, reasoner.width, torch.float32)
    if hasattr(sampler, "heads"):
        sampler.heads.to("meta")
    prefixes = [reasoner.prefill([prompt])[0] for prompt in PROMPTS]
    asks = [
        Ask(prompt, 1, tuple(range(-1, n)), prefix=prefix)
        for prompt, prefix, n in zip(PROMPTS, prefixes, (5, 20, 2), strict=True)
    ]
    return LaneBatch(reasoner, sampler, asks, reasoner.format.suffix_capacity)


@pytest.mark.parametrize("spec", ["gts", "gaussian", "dropout:0.2"])
@pytest.mark.parametrize(
    ("kind", "architecture", "calculator"),
    [("coconut", "gpt2", False), ("codi", "llama", False), ("codi", "llama", True)],
)
def test_thoughts_and_answer_tokens_need_no_host(
    kind: str, architecture: str, calculator: bool, spec: str
) -> None:
    reasoner = on_meta(kind, architecture, calculator=calculator)
    batch = batch_of(reasoner, spec)
    hidden = think(batch, keep=True).hidden
    texts = Texts(reasoner.format, len(hidden), hidden.device)
    for step in range(3):
        chosen = next_tokens(batch, texts, hidden, reasoner.format.latent_positions, step)
        hidden = feed(batch, texts, chosen, reasoner.format.latent_positions + step)
    assert hidden.is_meta
    with pytest.raises(NotImplementedError):
        texts.is_done.tolist()  # the look at what has finished is the only wait


@pytest.mark.parametrize("calculator", [False, True])
@pytest.mark.parametrize("spec", ["token:0.9", "dropout:0.2", "deterministic"])
def test_reasoning_text_needs_no_host(spec: str, calculator: bool) -> None:
    reasoner = on_meta("cot", "gpt2", calculator=calculator)
    batch = batch_of(reasoner, spec)
    hidden = batch.first_hidden
    texts = Texts(reasoner.format, len(hidden), hidden.device)
    for step in range(3):
        chosen = next_tokens(batch, texts, hidden, 0, step)
        hidden = feed(batch, texts, chosen, step)
    assert hidden.is_meta


@pytest.mark.parametrize("architecture", ["gpt2", "llama"])
def test_a_step_compiles_whole_with_the_slot_as_a_tensor(architecture: str) -> None:
    """No graph break, one graph for all slots, and the states of the plain step up to rounding.

    Captured, and run by torch's own operations: code made for a CPU takes minutes to compile.
    """
    reasoner = make_reasoner("coconut", architecture, dtype=torch.float32)
    batch = batch_of(reasoner, "gaussian")
    graphs: list[object] = []

    def count(graph: torch.fx.GraphModule, _: object) -> object:
        graphs.append(graph)
        return graph.forward

    step = torch.compile(
        lambda inputs, slot: reasoner.step(inputs, batch.cache, slot), fullgraph=True, backend=count
    )
    plain = [reasoner.step(batch.first_hidden, batch.cache, slot) for slot in range(3)]
    batch.cache.at(torch.tensor(0))  # the slots that were not written are zeroed once
    for slot, expected in enumerate(plain):
        found = step(batch.first_hidden, torch.tensor(slot))
        assert torch.allclose(found, expected, atol=1e-5)
        assert found.argmax(-1).tolist() == expected.argmax(-1).tolist()
    assert len(graphs) == 1


def test_the_numbers_of_a_step_are_those_drawn_one_site_at_a_time() -> None:
    noise = LaneNoise((5, 2**62, 9), (0, 3, -1))
    addresses = (
        Address(Site.EMBEDDING, 30),
        Address(Site.ATTENTION, 21, layer=1, rows=3),
        Address(Site.MLP_RESIDUAL, 30, layer=1),
    )
    is_asked = torch.tensor([True, False, True])
    for address, found in zip(addresses, noise.exceed(4, addresses, 0.3, is_asked), strict=True):
        drawn = noise.uniform(
            4, address.site, address.columns, layer=address.layer, rows=address.rows
        )
        assert torch.equal(found, (drawn >= 0.3) | ~is_asked[:, None, None])
