"""The thought loop of inference: feed back f(h) + z, K times, then <end_latent>.

With a calculator, the context of a thought that stands in a result is the embedding of its sign in
place of f(h) (spelled_equations.py). It is perturbed like the others.
"""

from dataclasses import dataclass

import torch

from latent.batch import LaneBatch
from latent.spelled_equations import SpelledEquations

__all__ = ["Thoughts", "think"]


@dataclass(frozen=True)
class Thoughts:
    """Results of the thought loop, for all T rows."""

    hidden: torch.Tensor  # (T, D) after <end_latent>: the answer is decoded from here
    final: torch.Tensor  # (T, D) what the last thought put out
    contexts: torch.Tensor | None  # (T, K, D), on request
    perturbations: torch.Tensor | None  # (T, K, D), on request
    states: torch.Tensor | None  # (T, K, D) h, from which each thought was made; on request
    chain_logprobs: torch.Tensor | None  # (T,) of the signs that a calculator has read


def think(
    batch: LaneBatch,
    *,
    sites: int | None = None,
    keep: bool = False,
    keep_states: bool = False,
) -> Thoughts:
    """Run all rows through their thoughts, perturbing the first `sites` of them (all by default)."""
    reasoner, sampler = batch.reasoner, batch.sampler
    count, dtype = reasoner.format.thoughts, reasoner.compute_dtype
    perturbed = (count if sites is None else sites) if sampler.is_additive else 0
    epsilon = batch.noise.normal(perturbed, reasoner.width).to(dtype)  # (K, T, D)
    if batch.noise_scales is not None:
        epsilon *= batch.noise_scales[:, None]
    is_sampled = batch.is_sampled[:, None]
    contexts, perturbations, states = [], [], []
    hidden = batch.first_hidden
    equations: SpelledEquations | None = None
    if reasoner.format.calculator:
        equations = SpelledEquations(
            reasoner.calculator, reasoner.embed, len(hidden), reasoner.sign_head
        )
    for k in range(count):
        masks = batch.masks(step=k)
        if keep_states:
            states.append(hidden)
        context = reasoner.feedback(hidden, masks)  # (T, D), before z is added
        if equations is not None:
            context = equations.correct(context)
        if k < perturbed:
            drawn = sampler.perturb(context.to(dtype), epsilon[k])
            z = torch.where(is_sampled, drawn, torch.zeros_like(drawn)).to(context.dtype)
            thought = context + z
        else:
            z, thought = torch.zeros_like(context), context
        if keep:
            contexts.append(context)
            perturbations.append(z)
        if equations is not None:
            equations.read(thought, hidden)
        hidden = reasoner.step(thought, batch.cache, k, masks)
    final = hidden
    for slot, token in enumerate((reasoner.format.end_id or 0, *reasoner.format.after_end_ids)):
        end = torch.full((len(hidden),), token, device=reasoner.device)
        hidden = reasoner.step(reasoner.embed(end), batch.cache, count + slot)
    return Thoughts(
        hidden=hidden,
        final=final,
        contexts=torch.stack(contexts, dim=1) if contexts else None,
        perturbations=torch.stack(perturbations, dim=1) if perturbations else None,
        states=torch.stack(states, dim=1) if states else None,
        chain_logprobs=None if equations is None else equations.logprobs,
    )
