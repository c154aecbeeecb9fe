"""Spelled thoughts: a decoder that writes equations learns to think them, a token in each thought.

At first the places of the thoughts hold the tokens of the equations, as the text reasoner writes
them, so that a whole batch is one pass of text. In the same pass the projection learns to make of
each state the embedding of the token that comes next. Then its own thoughts are fed back, and the
vocabulary head must still read the next token of the equations in each: SIM-CoT's step supervision,
with the decoder's own head.

Readings, and what was tried:
1. There is no distillation: the text to learn from stands in the thoughts' own places.
2. No gradient flows through what is fed back. The thoughts of a batch are made first, then read in one
   pass with gradients. With gradients through 16 thoughts of a 30-layer decoder their norm was 5 to 60,
   and in 30 steps the loss of the chain rose from 0.66 to 1.0; a step took three times as long.
3. A thought of its own is fed back only where it reads as the token that it should be; elsewhere the
   token's embedding is. Fed back whatever they are, thoughts with one sign more or less than the
   equations are taught the tokens of other places.
4. The thoughts of a batch are made in one pass over the tokens' embeddings, not one after the other:
   each is then made behind true tokens instead of its own thoughts, which read the same. 24 passes of
   one position took longer than the pass with gradients.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from latent.calculator import Calculator
from latent.errors import InputError
from latent.reasoner import ProjectionMLP
from latent.spelled_equations import SpelledEquations, nearest_sign
from trainer.backbone.curriculum import Curriculum
from trainer.backbone.thinking import (
    Feedback,
    forced_states,
    is_exact,
    read_out,
    think_forced,
    token_loss,
)
from trainer.data.corpus import IGNORED, Batch, Example

__all__ = ["SpelledThoughts", "Spelling", "spell_chain"]

_SEPARATOR = "\n"  # between equations, and after the last
_ALPHABET = f"0123456789.=+-*/{_SEPARATOR}"
_LABELLED_PADS = 2  # one ends the last equation, one the chain; later thoughts are free


def spell_chain(equations: Sequence[str]) -> str:
    """Write equations as the text reasoner does, one after the other."""
    return _SEPARATOR.join(equations)


class Spelling:
    """Writes an example's equations as `count` tokens, one for each thought.

    With a calculator, the results of equations are its to write, and no labels.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerFast,
        count: int,
        calculator: Calculator | None = None,
    ) -> None:
        encoded = {char: tokenizer.encode(char, add_special_tokens=False) for char in _ALPHABET}
        long = [char for char, ids in encoded.items() if len(ids) != 1]
        if long:
            raise InputError(
                f"the tokenizer has no single token for {long[0]!r}, and spelled thoughts need one "
                "for each digit and sign",
                param="spelled_thoughts",
            )
        self._ids = {char: ids[0] for char, ids in encoded.items()}
        self.count = count
        self.calculator = calculator

    def fits(self, example: Example) -> bool:
        """Whether its equations can be written, with at least one place after them."""
        chain = spell_chain(example.equations)
        return 0 < len(chain) < self.count and all(char in self._ids for char in chain)

    def tokens(self, examples: Sequence[Example]) -> Tensor:
        """Tokens of the chains, padded: (B, K)."""
        chains = [spell_chain(e.equations).ljust(self.count, _SEPARATOR) for e in examples]
        return torch.tensor([[self._ids[char] for char in chain] for chain in chains])

    def labels(self, examples: Sequence[Example]) -> Tensor:
        """Tokens that the thoughts must predict, IGNORED where they are free: (B, K)."""
        labels = self.tokens(examples)
        labels[self.computed(labels)] = IGNORED
        for row, example in enumerate(examples):
            labels[row, len(spell_chain(example.equations)) + _LABELLED_PADS :] = IGNORED
        return labels

    def computed(self, tokens: Tensor) -> Tensor:
        """Which of the tokens (B, K) the calculator writes: (B, K)."""
        if self.calculator is None:
            return torch.zeros_like(tokens, dtype=torch.bool)
        return torch.tensor(self.calculator.computed(tokens.tolist()))

    def read(self, thoughts: Tensor, embedding: nn.Module) -> Tensor:
        """Tokens that thoughts (B, K, D) are nearest to: (B, K)."""
        ids = torch.tensor(list(self._ids.values()))
        return ids[nearest_sign(thoughts.float(), embedding(ids))]

    def feedback(self, project: Feedback, embedding: nn.Module, rows: int) -> Feedback:
        """Feedback of a batch as it is served: projected states (B, 1, D), and computed results."""
        if self.calculator is None:
            return project
        equations = SpelledEquations(self.calculator, embedding, rows)

        def calculated(state: Tensor) -> Tensor:
            thought = equations.correct(project(state)[:, 0])
            equations.read(thought)
            return thought[:, None]

        return calculated

    @torch.no_grad()
    def start_projection(self, projection: ProjectionMLP, embedding: nn.Module) -> None:
        """Let a new projection put out vectors with the mean and size of its targets."""
        rows = embedding(torch.tensor(list(self._ids.values())))  # (A, D)
        projection.norm.bias.copy_(rows.mean(0))  # type: ignore[operator]
        projection.norm.weight.copy_(rows.std(0))  # type: ignore[operator]


@dataclass(frozen=True)
class SpelledThoughts(Curriculum):
    """Loss of a batch whose thoughts are spelled: given as tokens, or fed back."""

    spelling: Spelling | None = None
    dropout: float = 0.0

    def loss(
        self,
        model: PreTrainedModel,
        projection: nn.Module | None,
        stage: int,
        examples: Sequence[Example],
        rng: np.random.Generator,
    ) -> dict[str, Tensor]:
        """Loss of one batch and its parts; a share of the fed-back batches is given as tokens."""
        chosen = self.stages[stage]
        if chosen.is_text:
            return super().loss(model, projection, stage, examples, rng)
        assert projection is not None
        assert self.spelling is not None
        batch = self.batch(chosen, examples)
        tokens = self.spelling.tokens(examples)
        targets = model.get_input_embeddings()(tokens)  # (B, K, D)
        is_computed = self.spelling.computed(tokens)
        fed = targets
        if not chosen.is_forced and rng.random() >= self.review_share:
            rate = self.dropout if chosen.has_dropout else 0.0
            own = own_thoughts(
                model, batch, targets, lambda state: projection(F.dropout(state, rate))
            )
            reads_right = self.spelling.read(own, model.get_input_embeddings()) == tokens
            fed = torch.where((reads_right & ~is_computed)[..., None], own, targets)
        thinking = think_forced(model, batch, fed)
        made = projection(thinking.thoughts).float()
        distance = F.mse_loss(made[~is_computed], targets[~is_computed]) / targets.var()
        answer = token_loss(thinking.logits, batch.labels)
        steps = token_loss(read_out(model, thinking.thoughts), self.spelling.labels(examples))
        return {
            "loss": distance + answer + steps,
            "distance": distance.detach(),
            "answer": answer.detach(),
            "steps": steps.detach(),
        }

    def exact_forced(
        self, model: PreTrainedModel, batch: Batch, examples: Sequence[Example]
    ) -> Tensor:
        """Whether greedy decoding would write each chain and its answer: (B,)."""
        assert self.spelling is not None
        targets = model.get_input_embeddings()(self.spelling.tokens(examples))
        thinking = think_forced(model, batch, targets)
        chain = is_exact(read_out(model, thinking.thoughts), self.spelling.labels(examples))
        return chain & is_exact(thinking.logits, batch.labels)


@torch.no_grad()
def own_thoughts(
    model: PreTrainedModel, batch: Batch, targets: Tensor, feedback: Feedback
) -> Tensor:
    """Thoughts that the model makes behind the true ones (B, K, D), without gradients: (B, K, D)."""
    return feedback(forced_states(model, batch.prompt, targets)).float()
