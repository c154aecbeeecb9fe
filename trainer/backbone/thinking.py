"""Differentiable thought loop, for training backbones, and their accuracy by teacher forcing.

Serving and sampling use the loop in `latent`. COCONUT and CODI differ only in the feedback function:
the identity, or a projection.
"""

import copy
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import DynamicCache, PreTrainedModel

from trainer.data.corpus import IGNORED, Batch, Corpus, Example

Feedback = Callable[[Tensor], Tensor]
# Makes the feedback of a batch from its number of rows: it may keep what the rows have thought.
MakeFeedback = Callable[[int], Feedback]
# Whether greedy decoding would be right, given tokens or codes in place of the thoughts: (B,).
ExactForced = Callable[[PreTrainedModel, Batch, Sequence[Example]], Tensor]


@dataclass(frozen=True)
class Prefix:
    """A prefilled prompt, perhaps with thoughts: KV cache and last hidden state."""

    cache: DynamicCache
    state: Tensor  # (B, 1, D)
    thoughts: Tensor | None = None  # (B, K, D) the states that were fed back, before the feedback

    def fork(self) -> "Prefix":
        """Copy whose cache can grow without changing this one."""
        cache = DynamicCache()
        # Updating a cache layer replaces its tensors, so shallow copies are enough.
        cache.layers = [copy.copy(layer) for layer in self.cache.layers]
        return Prefix(cache, self.state)


def read_prompt(model: PreTrainedModel, prompt: Tensor) -> Prefix:
    """Prefill the prompt (B, P)."""
    cache = DynamicCache()
    output = model.base_model(input_ids=prompt, past_key_values=cache, use_cache=True)
    return Prefix(cache, output.last_hidden_state[:, -1:])


def add_thoughts(
    model: PreTrainedModel, prefix: Prefix, thoughts: int, feedback: Feedback
) -> Prefix:
    """Feed back `thoughts` hidden states, one position at a time, into the prefix's cache."""
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
    """Output of one forward pass over a batch."""

    logits: Tensor  # (B, T, V) of the target positions
    thoughts: Tensor  # (B, K, D) hidden states at the thoughts' positions


def think(model: PreTrainedModel, batch: Batch, feedback: Feedback) -> Tensor:
    """Logits (B, T, V) of a batch's target positions."""
    if batch.thoughts:
        return think_through(model, batch, feedback).logits
    whole = torch.cat((batch.prompt, batch.inputs), dim=1)
    states = model.base_model(input_ids=whole, use_cache=False).last_hidden_state
    return read_out(model, states[:, -batch.inputs.shape[1] :])


def think_through(model: PreTrainedModel, batch: Batch, feedback: Feedback) -> Thinking:
    """Feed every thought back, then read the target."""
    prefix = add_thoughts(model, read_prompt(model, batch.prompt), batch.thoughts, feedback)
    states = model.base_model(
        input_ids=batch.inputs, past_key_values=prefix.cache, use_cache=True
    ).last_hidden_state
    assert prefix.thoughts is not None
    return Thinking(read_out(model, states), prefix.thoughts)


def think_forced(model: PreTrainedModel, batch: Batch, forced: Tensor) -> Thinking:
    """Feed given embeddings (B, K, D) in place of the thoughts: all positions in one pass."""
    embed = model.get_input_embeddings()
    parts = (embed(batch.prompt), forced, embed(batch.inputs))
    states = model.base_model(
        inputs_embeds=torch.cat(parts, dim=1), use_cache=False
    ).last_hidden_state
    first = batch.prompt.shape[1] - 1
    thoughts = states[:, first : first + forced.shape[1]]
    return Thinking(read_out(model, states[:, -batch.inputs.shape[1] :]), thoughts)


def forced_states(model: PreTrainedModel, prompt: Tensor, forced: Tensor) -> Tensor:
    """Hidden states from which the thoughts are made, with embeddings (B, K, D) fed in their places."""
    embed = model.get_input_embeddings()
    parts = (embed(prompt), forced[:, :-1])
    states: Tensor = model.base_model(
        inputs_embeds=torch.cat(parts, dim=1), use_cache=False
    ).last_hidden_state
    return states[:, prompt.shape[1] - 1 :]  # (B, K, D)


def read_out(model: PreTrainedModel, states: Tensor) -> Tensor:
    """Logits of hidden states."""
    head: nn.Module = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    logits: Tensor = head(states)
    return logits


def identity(state: Tensor) -> Tensor:
    """Feedback of COCONUT: the last hidden state itself."""
    return state


def token_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy over the labels that are not padding."""
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED)


def is_exact(logits: Tensor, labels: Tensor) -> Tensor:
    """Whether greedy decoding would give exactly the labels of each row: (B,)."""
    return ((logits.argmax(-1) == labels) | (labels == IGNORED)).all(-1)


ABLATIONS: dict[str, Feedback] = {
    "zeroed": torch.zeros_like,
    "swapped": lambda thought: thought.roll(1, dims=0),  # no change in a batch of one
}


def altered(feedback: Feedback, alter: Feedback | None) -> Feedback:
    """A feedback with every thought altered."""
    return feedback if alter is None else lambda state: alter(feedback(state))


@dataclass(frozen=True)
class Examination:
    """Share of problems solved, in all and by number of steps."""

    accuracy: float
    by_steps: dict[int, float]
    problems: int


def describe(measured: Examination) -> str:
    """The accuracies in one line."""
    parts = " ".join(f"{steps}:{share:.2f}" for steps, share in measured.by_steps.items())
    return f"accuracy {measured.accuracy:.3f} of {measured.problems} (by steps {parts})"


@torch.no_grad()
def examine(
    model: PreTrainedModel,
    corpus: Corpus,
    lay_out: Callable[[Sequence[Example]], Batch],
    make_feedback: MakeFeedback,
    ablation: str | None = None,
    forced: ExactForced | None = None,
) -> Examination:
    """Accuracy of the deterministic trajectory by teacher forcing; an ablation alters every thought.

    Greedy decoding is right iff every label is the argmax. With `forced`, the thoughts are given, and
    every thought must predict what it stands for as well.
    """
    alter = ABLATIONS[ablation] if ablation else None
    was_training = model.training
    model.train(False)
    right: defaultdict[int, list[bool]] = defaultdict(list)
    batches = corpus.in_order(128)
    if ablation == "swapped":  # a question without another of its length is left out
        batches = [group for group in batches if len(group) > 1] or batches
    for examples in batches:
        batch = lay_out(examples)
        if forced is None:
            feedback = altered(make_feedback(len(examples)), alter)
            exact = is_exact(think(model, batch, feedback), batch.labels)
        else:
            exact = forced(model, batch, examples)
        for example, hit in zip(examples, exact.tolist(), strict=True):
            right[len(example.steps)].append(hit)
    model.train(was_training)
    hits = [hit for group in right.values() for hit in group]
    return Examination(
        accuracy=sum(hits) / len(hits),
        by_steps={count: sum(group) / len(group) for count, group in sorted(right.items())},
        problems=len(hits),
    )
