"""The paper's measures, as pure functions: gain, shift, signal-to-noise, pass@N, diversity."""

import math
from collections.abc import Sequence
from decimal import Decimal

import torch

__all__ = [
    "GAIN_THRESHOLD",
    "answer_log_odds",
    "gain_rate",
    "js_divergence",
    "log_complement",
    "pass_at",
    "sampling_gain",
    "signal_to_noise",
    "unique_answers",
]

GAIN_THRESHOLD = 0.5


def log_complement(logprobs: torch.Tensor, token: torch.Tensor) -> torch.Tensor:
    """log(1 − p(token)) of one token for each row: (…, V), (…,) → (…,).

    It is summed over the other tokens, so it stays finite where p rounds to 1.
    """
    others = logprobs.scatter(-1, token[..., None], float("-inf"))
    return others.logsumexp(-1)


def answer_log_odds(token_logprobs: torch.Tensor, complements: torch.Tensor) -> torch.Tensor:
    """Logit p(whole answer) from log p and log(1 − p) of its tokens, each (…, tokens): (…,).

    1 − Πp is the sum over tokens of being right up to there and wrong then: no cancellation.
    """
    before = token_logprobs.cumsum(-1) - token_logprobs
    return token_logprobs.sum(-1) - (before + complements).logsumexp(-1)


def sampling_gain(sampled: torch.Tensor, deterministic: torch.Tensor) -> torch.Tensor:
    """SG: the best log-odds (…, N) less the deterministic trajectory's (…,)."""
    return sampled.amax(-1) - deterministic


def gain_rate(gains: torch.Tensor, threshold: float = GAIN_THRESHOLD) -> float:
    """Share of gains above a threshold."""
    return float((gains > threshold).double().mean())


def js_divergence(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Jensen–Shannon divergence in nats, 0 … log 2, of log-probabilities (…, V): (…,)."""
    left, right = left.double(), right.double()
    middle = torch.logaddexp(left, right) - math.log(2.0)
    halves = [(side.exp() * (side - middle)).nan_to_num(0.0).sum(-1) for side in (left, right)]
    return (0.5 * (halves[0] + halves[1])).clamp(min=0.0)


def signal_to_noise(mean: torch.Tensor, std: torch.Tensor) -> torch.Tensor:
    """rms(μ)/rms(σ) per thought, averaged over trajectories: (N, K, D) → (K,)."""
    ratio = mean.square().mean(-1).sqrt() / std.square().mean(-1).sqrt()
    return ratio.mean(0)


def pass_at(n: int, correct: int, budget: int) -> float:
    """Estimate pass@budget without bias from n trajectories of which `correct` are right."""
    if not 0 <= correct <= n or not 1 <= budget <= n:
        raise ValueError(f"need 0 ≤ correct ≤ n and 1 ≤ budget ≤ n, got {correct}, {budget}, {n}")
    return 1.0 - math.comb(n - correct, budget) / math.comb(n, budget)


def unique_answers(answers: Sequence[Decimal | None]) -> int:
    """Count the distinct answers; the unparsable ones are not answers."""
    return len({answer for answer in answers if answer is not None})
