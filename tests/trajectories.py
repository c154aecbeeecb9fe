"""Trajectories to vote with, made of an answer and a confidence."""

import math
from decimal import Decimal

import numpy as np

from latent.trajectory import Trajectory


def trajectory(
    index: int,
    answer: int | None,
    confidence: float = 0.5,
    thought: list[float] | None = None,
    text: str = "",
) -> Trajectory:
    """A trajectory that voted for an answer with a confidence."""
    return Trajectory(
        index=index,
        text=text,
        answer=None if answer is None else Decimal(answer),
        logprob=math.log(confidence) if confidence > 0 else -math.inf,
        tokens=(),
        token_logprobs=(),
        answer_start=None,
        final_thought=None if thought is None else np.array(thought),
    )
