"""Trajectories to learn from, drawn by the rollout that also serves.

`Environment` is what the training loop needs of a reasoner; `ReasonerEnvironment` implements it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from latent.answers import same_answer
from latent.errors import InputError, SpecError
from latent.folders import LOG_STD_FLOOR
from latent.noise import derive_seed
from latent.reasoner import Reasoner
from latent.rollout import Ask, Rollout, rollout
from latent.samplers import GaussianThoughtSampler, LearnedSampler, Sampler
from latent.specs import SamplerSpec
from latent.trajectory import DETERMINISTIC
from trainer.data.questions import Draw, Question
from trainer.runs.ranks import Ranks

__all__ = [
    "Environment",
    "Episodes",
    "ReasonerEnvironment",
    "TokenSpread",
    "joined_episodes",
    "rollout_dtype",
    "sample_in_order",
]

_QUESTIONS_PER_ROLLOUT = 32


@dataclass(frozen=True)
class Episodes:
    """N trajectories of each of R questions."""

    contexts: torch.Tensor  # (R, N, K, D) of the perturbed thoughts
    perturbations: torch.Tensor  # (R, N, K, D)
    is_correct: torch.Tensor  # (R, N) bool, on the CPU
    logprobs: torch.Tensor  # (R, N) float64, on the CPU


@dataclass(frozen=True)
class TokenSpread:
    """What the vocabulary head expects at M states from which thoughts are made."""

    contexts: torch.Tensor  # (M, D) of the thoughts
    variances: torch.Tensor  # (M, R) of the expected tokens' embeddings, along R directions


def joined_episodes(share: Episodes, total: int, ranks: Ranks) -> Episodes:
    """Gather the episodes of all ranks, `total` questions, on every rank."""
    return Episodes(
        ranks.rows(share.contexts, total),
        ranks.rows(share.perturbations, total),
        ranks.rows(share.is_correct, total),
        ranks.rows(share.logprobs, total),
    )


def rollout_dtype(device: torch.device) -> str:
    """What a frozen reasoner's trajectories are drawn in for training: on a CPU, as they are served.

    No gradient goes through the reasoner, so int8 products are no obstacle.
    """
    return "auto" if device.type == "cpu" else "fp32"


class Environment(Protocol):
    """Draws trajectories with perturbed thoughts and judges their answers."""

    @property
    def name(self) -> str: ...
    @property
    def fingerprint(self) -> str: ...
    def new_heads(
        self, log_std_bias: float, log_std_floor: float = LOG_STD_FLOOR, directions: int = 0
    ) -> GaussianThoughtSampler:
        """Create an untrained sampler of the right width, dtype and device."""

    def contexts(self, questions: Sequence[Question]) -> torch.Tensor:
        """Contexts of the unperturbed trajectory of each question: (R, K, D)."""

    def token_spread(self, questions: Sequence[Question], directions: torch.Tensor) -> TokenSpread:
        """What the vocabulary head expects along directions (R, D), in units of their lengths."""

    def sample(self, heads: GaussianThoughtSampler, draws: Sequence[Draw], lanes: int) -> Episodes:
        """Draw `lanes` trajectories of each question under the heads."""

    def deterministic(self, questions: Sequence[Question]) -> list[bool]:
        """Whether the unperturbed trajectory answers each question rightly."""


def sample_in_order(
    environment: Environment,
    heads: GaussianThoughtSampler,
    questions: Sequence[Question],
    lanes: int,
    seed: int,
    purpose: str,
) -> Iterator[Episodes]:
    """Episodes of all questions, some at a time, with noise that is a function of seed and purpose."""
    for first in range(0, len(questions), _QUESTIONS_PER_ROLLOUT):
        piece = questions[first : first + _QUESTIONS_PER_ROLLOUT]
        draws = [Draw(question, derive_seed(seed, purpose, question.id)) for question in piece]
        yield environment.sample(heads, draws, lanes)


class ReasonerEnvironment:
    """A frozen reasoner; each prompt is encoded once."""

    def __init__(self, reasoner: Reasoner, sites: int | None = None) -> None:
        if not reasoner.format.is_latent or reasoner.format.thoughts == 0:
            raise SpecError(
                f"{reasoner.name} has no thoughts to perturb; give a coconut or codi reasoner",
                param="model",
            )
        if sites is not None and sites > reasoner.format.thoughts:
            raise InputError(
                f"sites must be at most the {reasoner.format.thoughts} thoughts of {reasoner.name}, "
                f"got {sites}",
                param="sites",
            )
        self._reasoner = reasoner
        self._sites = reasoner.format.thoughts if sites is None else sites
        self._prompts: dict[str, tuple[int, ...]] = {}

    @property
    def name(self) -> str:
        return self._reasoner.name

    @property
    def fingerprint(self) -> str:
        return self._reasoner.fingerprint

    def new_heads(
        self, log_std_bias: float, log_std_floor: float = LOG_STD_FLOOR, directions: int = 0
    ) -> GaussianThoughtSampler:
        heads = GaussianThoughtSampler(
            self._reasoner.width,
            log_std_bias=log_std_bias,
            log_std_floor=log_std_floor,
            directions=directions,
        )
        return heads.to(self._reasoner.device, self._reasoner.compute_dtype)

    def contexts(self, questions: Sequence[Question]) -> torch.Tensor:
        done = self._unperturbed(questions, keep_thoughts=True)
        kept = [each.contexts for each in done if each.contexts is not None]
        return torch.cat(kept).to(self._reasoner.compute_dtype)

    @torch.no_grad()
    def token_spread(self, questions: Sequence[Question], directions: torch.Tensor) -> TokenSpread:
        reasoner = self._reasoner
        tokens = torch.arange(reasoner.vocabulary_size, device=reasoner.device)
        lengths = directions.square().sum(-1)  # (R,), squared
        at = reasoner.embed(tokens).to(directions.dtype) @ directions.T / lengths  # (V, R)
        contexts, variances = [], []
        for first in range(0, len(questions), _QUESTIONS_PER_ROLLOUT):
            piece = questions[first : first + _QUESTIONS_PER_ROLLOUT]
            for done in self._unperturbed(piece, keep_thoughts=True):
                assert done.contexts is not None
                assert done.states is not None
                states, context = done.states[0], done.contexts[0]  # (K, D) each
                p = reasoner.logits(states).to(at.dtype).softmax(-1)  # (K, V)
                variance = (p @ at.square() - (p @ at).square()).clamp(min=0.0)  # (K, R)
                # Where a calculator wrote the sign, nothing is left uncertain.
                is_own = torch.isclose(reasoner.feedback(states), context, atol=1e-3).all(-1)
                contexts.append(context.to(at.dtype))
                variances.append(torch.where(is_own[:, None], variance, 0.0))
        return TokenSpread(torch.cat(contexts), torch.cat(variances))

    def sample(self, heads: GaussianThoughtSampler, draws: Sequence[Draw], lanes: int) -> Episodes:
        asks = [Ask(self._prompt(draw.question), draw.seed, tuple(range(lanes))) for draw in draws]
        sampler = LearnedSampler(SamplerSpec("gts"), heads)
        done = rollout(self._reasoner, sampler, asks, sites=self._sites, keep_thoughts=True)
        dtype = self._reasoner.compute_dtype
        contexts = torch.stack([r.contexts for r in done if r.contexts is not None])
        perturbations = torch.stack([r.perturbations for r in done if r.perturbations is not None])
        return Episodes(
            contexts=contexts[:, :, : self._sites].to(dtype),  # (R, N, K, D)
            perturbations=perturbations[:, :, : self._sites].to(dtype),
            is_correct=torch.tensor(
                [
                    [same_answer(t.answer, draw.question.answer) for t in r.trajectories]
                    for draw, r in zip(draws, done, strict=True)
                ]
            ),
            logprobs=torch.tensor(
                [[t.logprob for t in r.trajectories] for r in done], dtype=torch.float64
            ),
        )

    def deterministic(self, questions: Sequence[Question]) -> list[bool]:
        done = self._unperturbed(questions)
        return [
            same_answer(r.trajectories[0].answer, question.answer)
            for question, r in zip(questions, done, strict=True)
        ]

    def check(self, questions: Sequence[Question]) -> None:
        """Refuse questions that can't be encoded (too long), quoting the first words of the first."""
        for question in questions:
            try:
                self._prompt(question)
            except InputError as error:
                words = " ".join(question.question.split()[:8])
                raise InputError(f"{words!r}…: {error}; leave it out", param="data") from error

    def _unperturbed(
        self, questions: Sequence[Question], *, keep_thoughts: bool = False
    ) -> list[Rollout]:
        asks = [Ask(self._prompt(question), 0, (DETERMINISTIC,)) for question in questions]
        sampler = Sampler(SamplerSpec("deterministic"))
        return rollout(
            self._reasoner, sampler, asks, keep_thoughts=keep_thoughts, keep_states=keep_thoughts
        )

    def _prompt(self, question: Question) -> tuple[int, ...]:
        if question.id not in self._prompts:
            self._prompts[question.id] = self._reasoner.encode(question.question)
        return self._prompts[question.id]
