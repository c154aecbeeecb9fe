"""The probe: distribution of the answer's tokens after a forced answer prefix."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from latent.batch import LaneBatch
from latent.lanes import to_device
from latent.quality import log_complement

__all__ = ["Probe", "probe"]


@dataclass(frozen=True)
class Probe:
    """One question's answer distributions, teacher-forced, for its N trajectories."""

    first_logprobs: torch.Tensor  # (N, V) of the first token of a number, after prefix and lead
    target_logprobs: torch.Tensor | None  # (N, tokens) of the true answer's tokens, if it was given
    target_complements: torch.Tensor | None  # (N, tokens) log(1 − p) of the same
    target_start: int = 0  # the true answer's first token behind the lead, among its tokens


def probe(
    batch: LaneBatch,
    hidden: torch.Tensor | None,
    slots: int | torch.Tensor,
    targets: Sequence[tuple[int, ...] | None],
) -> list[Probe]:
    """Force the answer prefix, then the lead, then the targets, from `slots` on.

    Later passes overwrite what was forced. `hidden` are the states (T, D) that a reasoner without a
    prefix answers from.
    """
    reasoner = batch.reasoner
    for position, token in enumerate(reasoner.format.answer_prefix_ids):
        ids = torch.full((len(batch.is_sampled),), token, device=reasoner.device)
        hidden = reasoner.step(reasoner.embed(ids), batch.cache, slots + position)
    assert hidden is not None
    # In float64: a log-probability that rounds to 0 would make a gain out of nothing.
    logprobs = first = reasoner.logits(hidden).double().log_softmax(-1)  # (T, V)
    forced, longest = _by_row(batch, targets)
    forced = to_device(forced, first.device)
    after_prefix = slots + len(reasoner.format.answer_prefix_ids)
    lead = reasoner.encoder.answer_lead_ids
    for position, token in enumerate(lead):
        ids = torch.full((len(batch.is_sampled),), token, device=reasoner.device)
        hidden = reasoner.step(reasoner.embed(ids), batch.cache, after_prefix + position)
        first = reasoner.logits(hidden).double().log_softmax(-1)
    columns, complements = [], []
    for position in range(longest):
        token_ids = forced[:, position]
        columns.append(logprobs.gather(-1, token_ids[:, None])[:, 0])
        complements.append(log_complement(logprobs, token_ids))
        if position + 1 < longest:
            inputs = reasoner.embed(token_ids)
            hidden = reasoner.step(inputs, batch.cache, after_prefix + position)
            logprobs = reasoner.logits(hidden).double().log_softmax(-1)
    results = []
    for rows, target in zip(batch.rows_of, targets, strict=True):
        own = slice(rows.start, rows.stop)
        if target is None:
            results.append(Probe(first[own], None, None))
            continue
        along = [torch.stack(each, dim=-1)[own, : len(target)] for each in (columns, complements)]
        start = len(lead) if target[: len(lead)] == lead else 0
        results.append(Probe(first[own], along[0], along[1], start))
    return results


def _by_row(
    batch: LaneBatch, targets: Sequence[tuple[int, ...] | None]
) -> tuple[torch.Tensor, int]:
    """Lay the targets out by row, padded: (T, longest)."""
    longest = max((len(target) for target in targets if target is not None), default=0)
    forced = torch.zeros(len(batch.is_sampled), longest, dtype=torch.long)
    for rows, target in zip(batch.rows_of, targets, strict=True):
        if target is not None:
            forced[rows.start : rows.stop, : len(target)] = torch.tensor(target)
    return forced, longest
