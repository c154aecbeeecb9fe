"""What a reasoner can promise of one seed here: equal bits in any batch, or equal tokens.

The kernels that compute a row depend on the CPU, the libraries and the threads, so the promise is not
assumed: the same lanes are run alone and among others, with the reasoner's own weights, and compared.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import nn

from latent.batch import Ask, LaneBatch
from latent.decoding import log_normaliser
from latent.samplers import GaussianThoughtSampler, LearnedSampler
from latent.specs import SamplerSpec

if TYPE_CHECKING:
    from latent.reasoner import Reasoner

__all__ = ["Reproducibility", "check_reproducibility"]

_TRACKED = 3  # lanes that are compared
# Lanes of the other questions of a pass. Larger questions are placed before the tracked lanes and
# smaller ones behind, so these vary the rows of a pass (16 to 96) and the place of the lanes in it.
_OTHERS = ((1,), (2, 1), (5,), (13, 2), (29,), (31, 8, 1), (79, 2))


@dataclass(frozen=True)
class Reproducibility:
    """`bits`: a trajectory is the same to the last bit in any batch. `tokens`: its tokens are the same
    unless the two likeliest differ by less than rounding; `reason` says what was seen.
    """

    kind: Literal["bits", "tokens"]
    reason: str


@torch.no_grad()
def check_reproducibility(reasoner: "Reasoner") -> Reproducibility:
    """Compare prefill, one perturbed thought and its logits, alone and in batches of other shapes."""
    if reasoner.device.type != "cpu":
        return Reproducibility("tokens", f"kernels on {reasoner.device.type} depend on the batch")
    sampler = LearnedSampler(SamplerSpec("gts"), _random_heads(reasoner))
    vocabulary = reasoner.vocabulary_size
    prompts = [tuple((7 + 31 * i * (n + 1)) % vocabulary for i in range(n)) for n in (11, 5, 16)]
    alone = [reasoner.prefill([prompt])[0] for prompt in prompts]
    together = reasoner.prefill(prompts)
    if not all(torch.equal(a.kv, b.kv) for a, b in zip(alone, together, strict=True)):
        return _differs("a prompt's keys and values", "when others are prefilled with it")
    tracked = Ask(prompts[0], 1, tuple(range(_TRACKED)), prefix=alone[0])
    reference = _run(reasoner, sampler, [tracked])
    for counts in _OTHERS:
        others = [
            Ask(prompts[n % 3], n + 2, tuple(range(count)), prefix=alone[n % 3])
            for n, count in enumerate(counts)
        ]
        if not torch.equal(_run(reasoner, sampler, [tracked, *others]), reference):
            return _differs("a lane", f"among questions of {', '.join(map(str, counts))} lanes")
    for budget in (8, 16, 40):
        larger = Ask(prompts[0], 1, tuple(range(budget)), prefix=alone[0])
        if not torch.equal(_run(reasoner, sampler, [larger])[:_TRACKED], reference):
            return _differs("a lane", f"with a budget of {budget}")
    return Reproducibility("bits", f"{len(_OTHERS) + 4} batches gave the same bits")


def _differs(what: str, when: str) -> Reproducibility:
    capability = torch.backends.cpu.get_cpu_capability()
    where = f"{capability}, {torch.get_num_threads()} threads"
    return Reproducibility("tokens", f"{what} has other bits {when} ({where})")


def _run(reasoner: "Reasoner", sampler: LearnedSampler, asks: Sequence[Ask]) -> torch.Tensor:
    """State and logits of the first ask's lanes after one thought: (N, D + V + 1)."""
    batch = LaneBatch(reasoner, sampler, asks, capacity=1)
    context = reasoner.feedback(batch.first_hidden)
    epsilon = batch.noise.normal(1, reasoner.width)[0].to(reasoner.compute_dtype)
    z = sampler.perturb(context.to(reasoner.compute_dtype), epsilon).to(context.dtype)
    hidden = reasoner.step(context + z, batch.cache, 0)
    logits = reasoner.logits(hidden)
    whole = torch.cat((hidden.to(logits.dtype), logits, log_normaliser(logits)[:, None]), dim=-1)
    rows = batch.rows_of[0]
    return whole[rows.start : rows.stop]


def _random_heads(reasoner: "Reasoner") -> GaussianThoughtSampler:
    """Heads of the size that a trained sampler has, with weights that are not zero."""
    heads = GaussianThoughtSampler(reasoner.width)
    generator = torch.Generator().manual_seed(0)
    for parameter in heads.parameters():
        nn.init.normal_(parameter, std=0.3 * reasoner.width**-0.5, generator=generator)
    return heads.to(reasoner.device, reasoner.compute_dtype).requires_grad_(False)
