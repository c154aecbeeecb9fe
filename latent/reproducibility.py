"""What a reasoner can promise of one seed here: equal bits in any batch, or equal tokens.

The kernels that compute a row depend on the CPU, the libraries and the threads, so the promise is not
assumed: the same lanes are run alone and among others, with the reasoner's own weights, and compared.
The result is kept in GTS_CACHE, since it takes seconds for a large decoder.
"""

import hashlib
import json
import logging
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch
from torch import nn

from latent.batch import Ask, LaneBatch
from latent.decoding import log_normaliser
from latent.errors import GtsError
from latent.files import cache_folder, read_json, write_json
from latent.samplers import GaussianThoughtSampler, LearnedSampler
from latent.specs import SamplerSpec

if TYPE_CHECKING:
    from latent.reasoner import Reasoner

__all__ = ["Reproducibility", "check_reproducibility", "known_reproducibility"]

_log = logging.getLogger(__name__)

_TRACKED = 3  # lanes that are compared
# Lanes of the other questions of a pass. Larger questions are placed before the tracked lanes and
# smaller ones behind, so these vary the rows of a pass and the place of the lanes in it.
_OTHERS = ((1,), (2, 1), (5,), (13, 2), (29,), (31, 8, 1), (79, 2))
# Threads cut the element-wise loops of large passes at places that depend on their size.
_OTHERS_WITH_THREADS = ((109,), (157, 3), (253,), (509,))
_BUDGETS = (8, 16, 40)
# A pass of a large decoder takes long, and its layers are more of the same shapes: fewer batches.
_LARGE_PARAMETERS = 50_000_000
_LARGE_OTHERS, _LARGE_BUDGETS = ((2, 1), (13, 2), (31, 8, 1)), (16,)
_PROMPT_LENGTHS = ((11, 5, 16), (45, 33, 40))  # of two length buckets
_STEPS = 2
_KERNEL_SETTINGS = ("ATEN_", "MKL_", "DNNL_", "ONEDNN_")  # environment variables


@dataclass(frozen=True)
class Reproducibility:
    """`bits`: a trajectory is the same to the last bit in any batch. `tokens`: its tokens are the same
    unless the two likeliest differ by less than rounding; `reason` says what was seen.
    """

    kind: Literal["bits", "tokens"]
    reason: str


def known_reproducibility(reasoner: "Reasoner") -> Reproducibility:
    """Look up what was measured under the same circumstances; measure and keep it otherwise."""
    if reasoner.compiled is not None:
        return Reproducibility("tokens", "compiled kernels depend on what shares a pass")
    cache = cache_folder()
    if cache is None or not reasoner.fingerprint or reasoner.device.type != "cpu":
        return check_reproducibility(reasoner)
    path = cache / f"reproducibility-{_circumstances(reasoner)}.json"
    try:
        kept = read_json(path) if path.is_file() else {}
        if set(kept) == {"kind", "reason"} and kept["kind"] in ("bits", "tokens"):
            return Reproducibility(kept["kind"], str(kept["reason"]))
    except (GtsError, TypeError):
        _log.warning("%s is damaged; it is made anew", path)
    found = check_reproducibility(reasoner)
    try:
        write_json(path, asdict(found))
    except OSError as error:  # a cache only saves time
        _log.warning("%s can't be written (%s); the next start takes longer", path, error)
    return found


def _circumstances(reasoner: "Reasoner") -> str:
    """Hash all that decides which kernels compute a row: weights, code, libraries, CPU and settings."""
    digest = hashlib.sha256()
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    facts = (
        reasoner.fingerprint,
        reasoner.precision,
        torch.get_num_threads(),
        torch.__config__.show(),  # its version, its libraries and the instructions that it uses
        _cpu(),
        sorted(item for item in os.environ.items() if item[0].startswith(_KERNEL_SETTINGS)),
    )
    digest.update(json.dumps(facts).encode())
    return digest.hexdigest()


def _cpu() -> list[str]:
    """Model and instruction sets of the CPU."""
    try:
        lines = Path("/proc/cpuinfo").read_text().partition("\n\n")[0].splitlines()
    except OSError:  # not Linux
        return [platform.processor(), platform.machine()]
    return [line for line in lines if line.startswith(("model name", "flags", "Features"))]


@torch.no_grad()
def check_reproducibility(reasoner: "Reasoner") -> Reproducibility:
    """Compare prefill, one perturbed thought and its logits, alone and in batches of other shapes."""
    if reasoner.device.type != "cpu":
        return Reproducibility("tokens", f"kernels on {reasoner.device.type} depend on the batch")
    sampler = LearnedSampler(SamplerSpec("gts"), _random_heads(reasoner))
    others: tuple[tuple[int, ...], ...] = _OTHERS
    budgets: tuple[int, ...] = _BUDGETS
    if reasoner.parameter_count > _LARGE_PARAMETERS:
        others, budgets = _LARGE_OTHERS, _LARGE_BUDGETS
    if torch.get_num_threads() > 1:
        others = (*others, *_OTHERS_WITH_THREADS)
    # The second bucket repeats only some of it: kernels depend on rows more than on the prompt.
    plan = list(zip(_PROMPT_LENGTHS, (others, others[2:4]), strict=True))
    for lengths, mates in plan:
        found = _compare(reasoner, sampler, lengths, mates, budgets)
        if found is not None:
            where = f"{torch.backends.cpu.get_cpu_capability()}, {torch.get_num_threads()} threads"
            return Reproducibility("tokens", f"{found} ({where})")
    count = sum(len(mates) + len(budgets) for _, mates in plan)
    return Reproducibility("bits", f"{count} batches gave the same bits")


def _compare(
    reasoner: "Reasoner",
    sampler: LearnedSampler,
    lengths: Sequence[int],
    others: Sequence[Sequence[int]],
    budgets: Sequence[int],
) -> str | None:
    """Run the same lanes alone and in other batches; return the first difference."""
    vocabulary = reasoner.vocabulary_size
    prompts = [tuple((7 + 31 * i * (n + 1)) % vocabulary for i in range(n)) for n in lengths]
    alone = [reasoner.prefill([prompt])[0] for prompt in prompts]
    together = reasoner.prefill(prompts)
    if not all(torch.equal(a.kv, b.kv) for a, b in zip(alone, together, strict=True)):
        return "a prompt has other bits when others are prefilled with it"
    tracked = Ask(prompts[0], 1, tuple(range(_TRACKED)), prefix=alone[0])
    reference = _run(reasoner, sampler, [tracked])
    for counts in others:
        mates = [
            Ask(prompts[n % 3], n + 2, tuple(range(count)), prefix=alone[n % 3])
            for n, count in enumerate(counts)
        ]
        if not torch.equal(_run(reasoner, sampler, [tracked, *mates]), reference):
            return f"a lane has other bits among questions of {', '.join(map(str, counts))} lanes"
    for budget in budgets:
        larger = Ask(prompts[0], 1, tuple(range(budget)), prefix=alone[0])
        if not torch.equal(_run(reasoner, sampler, [larger])[:_TRACKED], reference):
            return f"a lane has other bits with a budget of {budget}"
    return None


def _run(reasoner: "Reasoner", sampler: LearnedSampler, asks: Sequence[Ask]) -> torch.Tensor:
    """State and logits of the first ask's lanes after `_STEPS` thoughts: (N, D + V + 1)."""
    batch = LaneBatch(reasoner, sampler, asks, capacity=_STEPS)
    epsilon = batch.noise.normal(_STEPS, reasoner.width).to(reasoner.compute_dtype)
    hidden = batch.first_hidden
    for k in range(_STEPS):
        context = reasoner.feedback(hidden)
        z = sampler.perturb(context.to(reasoner.compute_dtype), epsilon[k]).to(context.dtype)
        hidden = reasoner.step(context + z, batch.cache, k)
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
