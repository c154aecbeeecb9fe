"""Trajectories to learn from and to measure on: drawn by the rollout that also serves, then labelled."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from latent.answers import same_answer
from latent.noise import derive_seed
from latent.reasoner import Reasoner
from latent.rollout import Ask, Rollout, rollout
from latent.samplers import Sampler
from latent.trajectory import Trajectory
from latent.verifier import LaneStates, Verifier
from trainer.data.questions import Question

__all__ = ["Drawer", "Examples", "Labelled", "joined_examples"]

_LANES_PER_ROLLOUT = 512


@dataclass(frozen=True)
class Labelled:
    """The trajectories of one question, each right or wrong."""

    trajectories: tuple[Trajectory, ...]
    is_right: tuple[bool, ...]
    read: LaneStates  # (N, …), in half precision

    @property
    def is_mixed(self) -> bool:
        """Whether some are right and some wrong: otherwise no score changes a vote."""
        return len(set(self.is_right)) == 2


@dataclass(frozen=True)
class Examples:
    """N trajectories of each of R questions, to learn from."""

    states: torch.Tensor  # (R, N, K + 1 + A, D) in half precision
    logprobs: torch.Tensor  # (R, N, A)
    is_right: torch.Tensor  # (R, N) bool


@dataclass(frozen=True)
class Drawer:
    """Draws the trajectories of a reasoner with one sampler; the verifier reads and scores them."""

    reasoner: Reasoner
    sampler: Sampler
    verifier: Verifier
    seed: int

    def draw(self, questions: Sequence[Question], lanes: int) -> Iterator[list[Labelled]]:
        """Draw `lanes` trajectories of each question and label them, some questions at a time."""
        size = max(1, _LANES_PER_ROLLOUT // lanes)
        for first in range(0, len(questions), size):
            chunk = questions[first : first + size]
            asks = [
                Ask(
                    self.reasoner.encode(question.question),
                    derive_seed(self.seed, "verifier", question.id),
                    tuple(range(lanes)),
                )
                for question in chunk
            ]
            done = rollout(
                self.reasoner, self.sampler, asks, verifier=self.verifier, keep_states=True
            )
            yield [_labelled(question, one) for question, one in zip(chunk, done, strict=True)]


def joined_examples(drawn: Sequence[Labelled]) -> Examples:
    """Put the trajectories of questions, equally many of each, together to learn from."""
    return Examples(
        torch.stack([one.read.states for one in drawn]),
        torch.stack([one.read.logprobs for one in drawn]),
        torch.tensor([one.is_right for one in drawn]),
    )


def _labelled(question: Question, done: Rollout) -> Labelled:
    assert done.verified is not None
    read = LaneStates(done.verified.states.half().cpu(), done.verified.logprobs.cpu())
    trajectories = tuple(replace(each, final_thought=None) for each in done.trajectories)
    is_right = tuple(same_answer(each.answer, question.answer) for each in trajectories)
    return Labelled(trajectories, is_right, read)
