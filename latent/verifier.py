"""A verifier: scores a trajectory by the states that the frozen reasoner has computed for it.

The states are the rollout's own, from the question's last token through all thoughts to the answer's
tokens, so that a score takes no pass of the decoder, only one of a small network. A score depends on
nothing but its own trajectory: not on the others of the question, nor on what shares the pass.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from latent.decoding import Decoded
from latent.errors import MismatchError, SpecError
from latent.files import save_tensors, write_json
from latent.lanes import to_device
from latent.reasoner import Reasoner
from latent.store import load_strictly
from latent.thinking import Thoughts
from latent.verifier_file import CARD_NAME, VerifierCard, VerifierShape, read_verifier_card

__all__ = [
    "LaneStates",
    "Verifier",
    "joined_states",
    "load_verifier",
    "save_verifier",
    "verifier_shape",
]

_WEIGHTS_NAME = "verifier.safetensors"
_OWN_TOKENS = 6  # of an answer, behind its prefix, that are read at most
_LOWEST_LOGPROB = -8.0
_LARGEST_LOG_SCORE = 20.0
# Scores are square roots of odds: with the odds themselves one overrated trajectory outweighs many.
_TEMPERATURE = 2.0


@dataclass(frozen=True)
class LaneStates:
    """What a verifier reads of T lanes."""

    states: torch.Tensor  # (T, K + 1 + A, D): before each thought, after the last, of each token
    logprobs: torch.Tensor  # (T, A) of the first A tokens; 0 after the end

    def __getitem__(self, rows: slice) -> "LaneStates":
        return LaneStates(self.states[rows], self.logprobs[rows])


def joined_states(parts: Sequence[LaneStates]) -> LaneStates:
    """Concatenate what was read of several passes."""
    return LaneStates(
        torch.cat([part.states for part in parts]), torch.cat([part.logprobs for part in parts])
    )


class Verifier(nn.Module):
    """A network over the states of a trajectory, side by side; its output is a logit."""

    def __init__(self, shape: VerifierShape, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.shape = shape
        hidden, positions = shape.hidden, shape.thoughts + 1 + shape.answer_tokens
        self.states = nn.Linear(positions * shape.width, hidden)
        self.logprobs = nn.Linear(shape.answer_tokens, hidden)
        self.judge = nn.Sequential(
            nn.LayerNorm(hidden),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, hidden),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, 1),
        )

    def forward(self, states: torch.Tensor, logprobs: torch.Tensor) -> torch.Tensor:
        """Logits (…,) from states (…, K + 1 + A, D) and log-probabilities (…, A)."""
        mixed = self.states(states.flatten(-2)) + self.logprobs(logprobs)
        return torch.as_tensor(self.judge(mixed)[..., 0])

    def new_answers(self, hidden: torch.Tensor) -> torch.Tensor:
        """Room for the states from which lanes choose their first tokens: (T, D) → (T, A, D)."""
        return hidden.new_zeros(len(hidden), self.shape.answer_tokens, self.shape.width)

    def read(
        self, thoughts: Thoughts, answers: torch.Tensor, rows: Sequence[Decoded]
    ) -> LaneStates:
        """Put what a pass has kept together; `answers` are those of `new_answers`, filled."""
        assert thoughts.states is not None
        dtype, room = self.states.weight.dtype, self.shape.answer_tokens
        states = torch.cat((thoughts.states, thoughts.final[:, None], answers), dim=1)
        padding = (0.0,) * room
        logprobs = torch.tensor([(*row.token_logprobs, *padding)[:room] for row in rows])
        logprobs = logprobs.clamp(min=_LOWEST_LOGPROB).to(dtype)
        return LaneStates(states.to(dtype), to_device(logprobs, states.device))

    @torch.no_grad()
    def scores(self, lanes: LaneStates) -> list[float]:
        """Score lanes; the scores of an answer's trajectories are added up by the vote."""
        logs = self(lanes.states, lanes.logprobs).double() / _TEMPERATURE
        logs = logs.nan_to_num(nan=-_LARGEST_LOG_SCORE)  # of a lane whose state has overflowed
        found: list[float] = logs.clamp(-_LARGEST_LOG_SCORE, _LARGEST_LOG_SCORE).exp().tolist()
        return found


def verifier_shape(reasoner: Reasoner, hidden: int) -> VerifierShape:
    """The shape of a verifier for a reasoner; a text reasoner has no thoughts to read."""
    format = reasoner.format
    if not format.is_latent or format.thoughts == 0:
        raise SpecError(
            f"{reasoner.name} has no thoughts to verify; give a coconut or codi reasoner",
            param="model",
        )
    own = min(_OWN_TOKENS, format.max_answer_tokens)
    tokens = len(format.answer_prefix_ids) + own
    return VerifierShape(reasoner.width, format.thoughts, tokens, hidden)


def save_verifier(folder: Path, verifier: Verifier, card: VerifierCard) -> None:
    """Write a verifier's weights and card; the card last, since loading begins with it."""
    tensors = {name: tensor.half() for name, tensor in verifier.state_dict().items()}
    save_tensors(folder / _WEIGHTS_NAME, tensors)
    write_json(folder / CARD_NAME, {"format": 1, **vars(card), "shape": vars(card.shape)})


def load_verifier(reasoner: Reasoner, folder: Path) -> Verifier:
    """Load a verifier that was trained for this reasoner."""
    shape = read_verifier_card(folder).shape
    expected = verifier_shape(reasoner, shape.hidden)
    if shape != expected:
        raise MismatchError(
            f"the verifier in {folder} is for {vars(shape)}, and {reasoner.name} needs "
            f"{vars(expected)}; train another",
            param="vote",
        )
    with torch.device("meta"):
        verifier = Verifier(shape)
    load_strictly(verifier, folder / _WEIGHTS_NAME, reasoner.compute_dtype)
    return verifier.to(reasoner.device).requires_grad_(False).eval()
