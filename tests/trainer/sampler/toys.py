"""A training environment without a reasoner, whose optimal sampler is known."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

import torch

from latent.folders import LOG_STD_FLOOR
from latent.noise import LaneNoise
from latent.samplers import GaussianThoughtSampler
from trainer.data.questions import Draw, Question
from trainer.sampler.episodes import Episodes, TokenSpread


@dataclass(frozen=True)
class TargetToy:
    """One thought of one dimension; a trajectory is right within `reach` of the question's answer.

    The context is the same for all questions, so a sampler can't know which answer is right.
    """

    reach: float = 0.5
    name: str = "toy"
    fingerprint: str = "toy-fingerprint"

    def new_heads(
        self, log_std_bias: float, log_std_floor: float = LOG_STD_FLOOR, directions: int = 0
    ) -> GaussianThoughtSampler:
        heads = GaussianThoughtSampler(
            1, log_std_bias=log_std_bias, log_std_floor=log_std_floor, directions=directions
        )
        return heads.double()

    def contexts(self, questions: Sequence[Question]) -> torch.Tensor:
        return torch.ones(len(questions), 1, 1, dtype=torch.float64)

    def token_spread(self, questions: Sequence[Question], directions: torch.Tensor) -> TokenSpread:
        contexts = self.contexts(questions).flatten(0, 1)
        return TokenSpread(contexts, torch.ones(len(contexts), len(directions)).double())

    @torch.no_grad()
    def sample(self, heads: GaussianThoughtSampler, draws: Sequence[Draw], lanes: int) -> Episodes:
        seeds = tuple(draw.seed for draw in draws for _ in range(lanes))
        epsilon = LaneNoise(seeds, tuple(range(lanes)) * len(draws)).normal(1, 1).double()
        contexts = torch.ones(len(draws), lanes, 1, 1, dtype=torch.float64)
        z = heads.sample(contexts, epsilon.view(contexts.shape))  # (R, N, 1, 1)
        wanted = torch.tensor([float(draw.question.answer) for draw in draws])
        is_correct = (z[..., 0, 0] - wanted[:, None]).abs() < self.reach
        return Episodes(contexts, z, is_correct, torch.zeros(is_correct.shape, dtype=torch.float64))

    def deterministic(self, questions: Sequence[Question]) -> list[bool]:
        return [abs(float(question.answer)) < self.reach for question in questions]


def toy_questions(count: int, answers: Sequence[int], name: str = "q") -> list[Question]:
    """Questions with these answers in turn."""
    return [
        Question(f"{name}:{number}", "?", Decimal(answers[number % len(answers)]))
        for number in range(count)
    ]
