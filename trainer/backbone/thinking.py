"""The thought loop with gradients, for training only; serving and sampling use the one in `latent`.

COCONUT and CODI differ here in nothing but the feedback: the identity, or a projection.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import DynamicCache, PreTrainedModel

from trainer.data.corpus import IGNORED, Batch

Feedback = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Prefix:
    """A prompt that has been read: its keys and values, and its last hidden state."""

    cache: DynamicCache
    state: Tensor  # (B, 1, D)
    thoughts: Tensor | None = None  # (B, K, D) the states that were fed back, before the feedback

    def fork(self) -> "Prefix":
        """Return a prefix that can be continued without changing this one."""
        cache = DynamicCache()
        # Updating a layer replaces its tensors, so shallow copies are enough.
        cache.layers = [copy.copy(layer) for layer in self.cache.layers]
        return Prefix(cache, self.state)


def read_prompt(model: PreTrainedModel, prompt: Tensor) -> Prefix:
    """Run the prompt (B, P) through the decoder."""
    cache = DynamicCache()
    output = model.base_model(input_ids=prompt, past_key_values=cache, use_cache=True)
    return Prefix(cache, output.last_hidden_state[:, -1:])


def add_thoughts(
    model: PreTrainedModel, prefix: Prefix, thoughts: int, feedback: Feedback
) -> Prefix:
    """Feed back `thoughts` states, one position at a time; the prefix's cache grows."""
    state, states = prefix.state, []
    for _ in range(thoughts):
        states.append(state)
        output = model.base_model(
            inputs_embeds=feedback(state), past_key_values=prefix.cache, use_cache=True
        )
        state = output.last_hidden_state  # (B, 1, D)
    return Prefix(prefix.cache, state, torch.cat(states, dim=1) if states else None)


@dataclass(frozen=True)
class Thinking:
    """What one pass over a batch gives."""

    logits: Tensor  # (B, T, V) of the target positions
    thoughts: Tensor  # (B, K, D) the states that are thoughts, or would be


def think(model: PreTrainedModel, batch: Batch, feedback: Feedback) -> Tensor:
    """Return the logits (B, T, V) of a batch's target positions."""
    if batch.thoughts:
        return think_on(model, batch, feedback).logits
    whole = torch.cat((batch.prompt, batch.inputs), dim=1)
    states = model.base_model(input_ids=whole, use_cache=False).last_hidden_state
    return read_out(model, states[:, -batch.inputs.shape[1] :])


def think_on(model: PreTrainedModel, batch: Batch, feedback: Feedback) -> Thinking:
    """Feed every thought back and return the thoughts too."""
    prefix = add_thoughts(model, read_prompt(model, batch.prompt), batch.thoughts, feedback)
    states = model.base_model(
        input_ids=batch.inputs, past_key_values=prefix.cache, use_cache=True
    ).last_hidden_state
    assert prefix.thoughts is not None
    return Thinking(read_out(model, states), prefix.thoughts)


def think_told(model: PreTrainedModel, batch: Batch, told: Tensor) -> Thinking:
    """Feed what is told (B, K, D) in place of the thoughts: all positions in one pass."""
    embed = model.get_input_embeddings()
    parts = (embed(batch.prompt), told, embed(batch.inputs))
    states = model.base_model(
        inputs_embeds=torch.cat(parts, dim=1), use_cache=False
    ).last_hidden_state
    first = batch.prompt.shape[1] - 1
    thoughts = states[:, first : first + told.shape[1]]
    return Thinking(read_out(model, states[:, -batch.inputs.shape[1] :]), thoughts)


def read_out(model: PreTrainedModel, states: Tensor) -> Tensor:
    """Return the logits of hidden states."""
    head: nn.Module = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    logits: Tensor = head(states)
    return logits


def identity(state: Tensor) -> Tensor:
    """COCONUT's feedback: the last hidden state itself."""
    return state


def token_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean cross-entropy over the labels that are not padding."""
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED)


def is_exact(logits: Tensor, labels: Tensor) -> Tensor:
    """Say for each row (B,) whether greedy decoding would give its labels exactly."""
    return ((logits.argmax(-1) == labels) | (labels == IGNORED)).all(-1)
