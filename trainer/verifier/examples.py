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
from trainer.runs.progress import Progress

__all__ = ["Examples", "Labelled", "draw_examples", "draw_labelled"]

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


def draw_labelled(
    reasoner: Reasoner,
    sampler: Sampler,
    verifier: Verifier,
    questions: Sequence[Question],
    lanes: int,
    seed: int,
) -> Iterator[list[Labelled]]:
    """Draw `lanes` trajectories of each question and label them, some questions at a time."""
    size = max(1, _LANES_PER_ROLLOUT // lanes)
    for first in range(0, len(questions), size):
        chunk = questions[first : first + size]
        asks = [
            Ask(
                reasoner.encode(question.question),
                derive_seed(seed, "verifier", question.id),
                tuple(range(lanes)),
            )
            for question in chunk
        ]
        done = rollout(reasoner, sampler, asks, verifier=verifier, keep_states=True)
        yield [_labelled(question, one) for question, one in zip(chunk, done, strict=True)]


def draw_examples(
    reasoner: Reasoner,
    sampler: Sampler,
    verifier: Verifier,
    questions: Sequence[Question],
    lanes: int,
    seed: int,
    progress: Progress,
) -> Examples:
    """Draw trajectories of all questions; keep those of questions with right and wrong ones."""
    kept: list[Labelled] = []
    done = 0
    for drawn in draw_labelled(reasoner, sampler, verifier, questions, lanes, seed):
        kept += [one for one in drawn if one.is_mixed]
        done += len(drawn)
        progress.show(done, {"mixed": str(len(kept))})
    if not kept:
        return Examples(torch.zeros(0), torch.zeros(0), torch.zeros(0, lanes, dtype=torch.bool))
    return Examples(
        torch.stack([one.read.states for one in kept]),
        torch.stack([one.read.logprobs for one in kept]),
        torch.tensor([one.is_right for one in kept]),
    )


def _labelled(question: Question, done: Rollout) -> Labelled:
    assert done.verified is not None
    read = LaneStates(done.verified.states.half().cpu(), done.verified.logprobs.cpu())
    trajectories = tuple(replace(each, final_thought=None) for each in done.trajectories)
    is_right = tuple(same_answer(each.answer, question.answer) for each in trajectories)
    return Labelled(trajectories, is_right, read)
