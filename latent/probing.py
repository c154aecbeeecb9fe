"""The probe: the answer's distribution behind a forced prefix, branched off without a trace."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from latent.batch import LaneBatch

__all__ = ["Probe", "probe"]


@dataclass(frozen=True)
class Probe:
    """One question's answer distributions, teacher-forced, for its N trajectories."""

    first_logprobs: torch.Tensor  # (N, V) of the first answer token after the forced prefix
    target_logprobs: torch.Tensor | None  # (N, tokens) of the true answer's tokens, if it was given


def probe(
    batch: LaneBatch,
    hidden: torch.Tensor | None,
    slots: int | torch.Tensor,
    targets: Sequence[tuple[int, ...] | None],
) -> list[Probe]:
    """Force the answer prefix, then the targets, from `slots` on (later passes overwrite them).

    `hidden` are the states (T, D) that a reasoner without a prefix answers from.
    """
    reasoner = batch.reasoner
    for position, token in enumerate(reasoner.format.answer_prefix_ids):
        ids = torch.full((len(batch.is_sampled),), token)
        hidden = reasoner.step(reasoner.embed(ids), batch.cache, slots + position)
    assert hidden is not None
    first = reasoner.logits(hidden).log_softmax(-1)  # (T, V)
    forced, longest = _by_row(batch, targets)
    after_prefix = slots + len(reasoner.format.answer_prefix_ids)
    logprobs, columns = first, []
    for position in range(longest):
        token_ids = forced[:, position].to(first.device)
        columns.append(logprobs.gather(-1, token_ids[:, None]))
        if position + 1 < longest:
            inputs = reasoner.embed(token_ids)
            hidden = reasoner.step(inputs, batch.cache, after_prefix + position)
            logprobs = reasoner.logits(hidden).log_softmax(-1)
    along = torch.cat(columns, dim=-1) if columns else None  # (T, longest)
    return [
        Probe(
            first_logprobs=first[rows.start : rows.stop],
            target_logprobs=along[rows.start : rows.stop, : len(target)]
            if target is not None and along is not None
            else None,
        )
        for rows, target in zip(batch.rows_of, targets, strict=True)
    ]


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
