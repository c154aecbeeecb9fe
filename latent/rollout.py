"""The rollout of questions × trajectories, used for serving, training and evaluation alike.

prefill → think → (probe) → decode, in passes of a bounded number of lanes, of prompts of any length.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache, partial

import numpy as np
import torch
from numpy.typing import NDArray

from latent.batch import Ask, LaneBatch
from latent.decoding import Decoded, decode, read_text
from latent.errors import InputError
from latent.lanes import Prefix
from latent.probing import Probe, probe
from latent.reasoner import Reasoner, bucket_of
from latent.samplers import Sampler
from latent.static_lanes import STATIC_BLOCK
from latent.thinking import Thoughts, think
from latent.trajectory import Timing, Trajectory
from latent.verifier import LaneStates, Verifier, joined_states

__all__ = ["Ask", "Rollout", "rollout"]

DEFAULT_LANE_LIMIT = 512


@dataclass(frozen=True)
class Rollout:
    """One question's trajectories, in the order asked for."""

    prefix: Prefix
    trajectories: tuple[Trajectory, ...]
    timing: Timing
    contexts: torch.Tensor | None = None  # (N, K, D), if thoughts were kept
    perturbations: torch.Tensor | None = None  # (N, K, D), if thoughts were kept
    states: torch.Tensor | None = None  # (N, K, D), if states were kept
    probe: Probe | None = None  # if asked for
    verified: LaneStates | None = None  # what a verifier has read, if states were kept


def rollout(
    reasoner: Reasoner,
    sampler: Sampler,
    asks: Sequence[Ask],
    *,
    sites: int | None = None,
    keep_thoughts: bool = False,
    keep_states: bool = False,
    with_probe: bool = False,
    verifier: Verifier | None = None,
    lane_limit: int = DEFAULT_LANE_LIMIT,
) -> list[Rollout]:
    """Run every ask to completion, at most `lane_limit` lanes at a time; results in order.

    With a verifier every trajectory gets a score.
    """
    reasoner.check_sampler(sampler.spec)
    prefixes = _prefill(reasoner, asks)
    parts: list[list[Rollout]] = [[] for _ in asks]
    compiled = None if with_probe or sampler.dropout else reasoner.compiled
    block = 1 if compiled is None else STATIC_BLOCK
    for members in _passes(asks, prefixes, lane_limit, block):
        pieces = [
            replace(asks[number], indices=indices, prefix=prefixes[number][0])
            for number, indices in members
        ]
        with nullcontext() if compiled is None else compiled.lock:
            done = _run(
                reasoner, sampler, pieces, sites, keep_thoughts, keep_states, with_probe, verifier
            )
        for (number, _), piece in zip(members, done, strict=True):
            parts[number].append(piece)
    return [
        _join(pieces, Timing(prefill=seconds))
        for pieces, (_, seconds) in zip(parts, prefixes, strict=True)
    ]


def _prefill(reasoner: Reasoner, asks: Sequence[Ask]) -> list[tuple[Prefix, float]]:
    """Prefill the asks that have no prefix, one length bucket at a time; return prefixes and seconds."""
    ready = {n: (ask.prefix, 0.0) for n, ask in enumerate(asks) if ask.prefix is not None}
    buckets: dict[int, list[int]] = defaultdict(list)
    for number, ask in enumerate(asks):
        if number not in ready:
            reasoner.encoder.check_length(len(ask.prompt))
            buckets[bucket_of(len(ask.prompt))].append(number)
    for numbers in buckets.values():
        started = _now(reasoner)
        done = reasoner.prefill([asks[number].prompt for number in numbers])
        seconds = _now(reasoner) - started
        ready.update({n: (prefix, seconds) for n, prefix in zip(numbers, done, strict=True)})
    return [ready[number] for number in range(len(asks))]


def _passes(
    asks: Sequence[Ask], prefixes: Sequence[tuple[Prefix, float]], lane_limit: int, block: int
) -> Iterator[list[tuple[int, tuple[int, ...]]]]:
    """Cut the asks into passes of at most `lane_limit` lanes, in index order.

    A question's lanes count as whole blocks.
    """
    if not all(ask.indices for ask in asks):
        raise InputError("a question needs at least one trajectory", param="budget")
    parts = [
        (number, ask.indices[first : first + lane_limit])
        for number, ask in enumerate(asks)
        for first in range(0, len(ask.indices), lane_limit)
    ]
    # Longer prompts last: a pass of many questions then has few prompt lengths.
    parts.sort(key=lambda part: prefixes[part[0]][0].bucket)
    members: list[tuple[int, tuple[int, ...]]] = []
    lanes = 0
    for number, indices in parts:
        own = len(indices) + -len(indices) % block
        if members and lanes + own > lane_limit:
            yield members
            members, lanes = [], 0
        members.append((number, indices))
        lanes += own
    if members:
        yield members


@torch.no_grad()
def _run(
    reasoner: Reasoner,
    sampler: Sampler,
    asks: Sequence[Ask],
    sites: int | None,
    keep_thoughts: bool,
    keep_states: bool,
    with_probe: bool,
    verifier: Verifier | None,
) -> list[Rollout]:
    """Run one pass: all lanes think, are probed if asked, decode, and are scored if asked."""
    started = _now(reasoner)
    format = reasoner.format
    targets = [ask.target for ask in asks]
    capacity = format.suffix_capacity
    if with_probe:
        longest = max(len(forced or ()) for forced in (*targets, reasoner.encoder.answer_lead_ids))
        capacity += len(format.answer_prefix_ids) + longest
    batch = LaneBatch(reasoner, sampler, asks, capacity)
    thoughts = None
    if format.is_latent:
        needs_states = keep_states or verifier is not None
        thoughts = think(batch, sites=sites, keep=keep_thoughts, keep_states=needs_states)
    thought_seconds = _now(reasoner) - started
    probes: list[Probe] | list[None] = [None] * len(asks)
    verified, scores = None, None
    if thoughts is not None:
        slot = format.latent_positions
        if with_probe:
            probes = probe(batch, thoughts.hidden, slot, targets)
        answers = None if verifier is None else verifier.new_answers(thoughts.hidden)
        rows = decode(batch, thoughts.hidden, slot, keep_all=False, states=answers)
        if verifier is not None and answers is not None:
            verified = verifier.read(thoughts, answers, rows)
            scores = verifier.scores(verified)
            if not keep_states:
                thoughts, verified = replace(thoughts, states=None), None
    else:
        rows = decode(batch, batch.first_hidden, 0, keep_all=with_probe)
        if with_probe:
            probes = probe(batch, None, _reasoning_lengths(reasoner, rows), targets)
    timing = Timing(0.0, thought_seconds, _now(reasoner) - started - thought_seconds)
    # Transfers from the device are for all questions of the pass at once.
    finals = thoughts.final.double().cpu().numpy() if thoughts else None  # (T, D)
    chains: Sequence[float] | None = [row.chain_logprob for row in rows]
    if thoughts is not None:
        chains = None if thoughts.chain_logprobs is None else thoughts.chain_logprobs.tolist()
    read = cache(partial(read_text, reasoner))  # many lanes write the same
    return [
        _result(read, ask, rows, lanes, thoughts, finals, chains, verified, scores, probed, timing)
        for ask, lanes, probed in zip(asks, batch.rows_of, probes, strict=True)
    ]


def _now(reasoner: Reasoner) -> float:
    """Read the clock after waiting for the device, so that times include queued kernels."""
    if reasoner.device.type == "cuda":
        torch.cuda.synchronize(reasoner.device)
    return time.perf_counter()


def _reasoning_lengths(reasoner: Reasoner, rows: Sequence[Decoded]) -> torch.Tensor:
    """Token count of each row's reasoning text, where a forced prefix would begin: (T,)."""
    prefix = len(reasoner.format.answer_prefix_ids)
    ends = [
        len(row.tokens) - row.is_finished if row.answer_start is None else row.answer_start - prefix
        for row in rows
    ]
    return torch.tensor(ends, device=reasoner.device)


def _result(
    read: Callable[[tuple[int, ...], int | None, bool], tuple[str, Decimal | None]],
    ask: Ask,
    rows: Sequence[Decoded],
    lanes: range,
    thoughts: Thoughts | None,
    finals: NDArray[np.float64] | None,
    chains: Sequence[float] | None,
    verified: LaneStates | None,
    scores: Sequence[float] | None,
    probed: Probe | None,
    timing: Timing,
) -> Rollout:
    """One question's part of a pass: of all T rows, those in `lanes`."""
    own = slice(lanes.start, lanes.stop)
    trajectories = []
    for index, lane in zip(ask.indices, lanes, strict=True):
        row = rows[lane]
        text, answer = read(row.tokens, row.answer_start, row.is_finished)
        trajectories.append(
            Trajectory(
                index=index,
                text=text,
                answer=answer,
                logprob=row.logprob,
                tokens=row.tokens,
                token_logprobs=row.token_logprobs,
                answer_start=row.answer_start,
                final_thought=None if finals is None else finals[lane],
                score=None if scores is None else scores[lane],
                chain_logprob=None if chains is None else chains[lane],
            )
        )
    assert ask.prefix is not None
    return Rollout(
        prefix=ask.prefix,
        trajectories=tuple(trajectories),
        timing=timing,
        contexts=_slice(thoughts.contexts if thoughts else None, own),
        perturbations=_slice(thoughts.perturbations if thoughts else None, own),
        states=_slice(thoughts.states if thoughts else None, own),
        probe=probed,
        verified=None if verified is None else verified[own],
    )


def _slice(tensor: torch.Tensor | None, rows: slice) -> torch.Tensor | None:
    return None if tensor is None else tensor[rows]


def _join(pieces: Sequence[Rollout], timing: Timing) -> Rollout:
    """Concatenate the passes of one question."""

    def cat(tensors: Sequence[torch.Tensor | None]) -> torch.Tensor | None:
        there = [tensor for tensor in tensors if tensor is not None]
        return torch.cat(there) if there else None

    probes = [piece.probe for piece in pieces if piece.probe is not None]
    verified = [piece.verified for piece in pieces if piece.verified is not None]
    first = cat([p.first_logprobs for p in probes])
    return Rollout(
        prefix=pieces[0].prefix,
        trajectories=tuple(t for piece in pieces for t in piece.trajectories),
        timing=sum((piece.timing for piece in pieces), timing),
        contexts=cat([piece.contexts for piece in pieces]),
        perturbations=cat([piece.perturbations for piece in pieces]),
        states=cat([piece.states for piece in pieces]),
        probe=None
        if first is None
        else Probe(
            first,
            cat([p.target_logprobs for p in probes]),
            cat([p.target_complements for p in probes]),
            probes[0].target_start,
        ),
        verified=joined_states(verified) if verified else None,
    )
