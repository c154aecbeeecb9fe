"""The embedded task: word problems with their equations, generated on demand, without torch."""

from trainer.data.problems.chains import SPLITS
from trainer.data.problems.generator import Problem, generate

__all__ = ["SPLITS", "Problem", "generate"]
