"""The text of a sampler's model card."""

from dataclasses import dataclass

from trainer.sampler.config import SamplerConfig
from trainer.sampler.loop import TrainingResult
from trainer.sampler.watch import Validation

__all__ = ["Provenance", "model_card"]


@dataclass(frozen=True)
class Provenance:
    """Where a sampler comes from, as far as the run does not know by itself."""

    command: str
    data: str
    questions: int


def model_card(
    reasoner: str, result: TrainingResult, config: SamplerConfig, provenance: Provenance
) -> str:
    """Write the card: what it is for, how it was made, what it does, what it does not."""
    paper = SamplerConfig().to_json()
    ours = {name: value for name, value in config.to_json().items() if value != paper[name]}
    changed = ", ".join(f"`{name}` = {value}" for name, value in ours.items()) or "nothing"
    budget, k = config.validation_budget, config.k
    objective = f"pass@{k}" if config.objective == "pass@k" else "the mean reward"
    return f"""# GTS sampler for {reasoner}

A Gaussian Thought Sampler: it perturbs the thoughts of `{reasoner}`, and of no other reasoner, so
that several trajectories of one question cover more answers worth having.

## Recipe
- Objective: {objective}, with confidence shaping α = {config.alpha}.
- A step: {config.prompts} questions × {config.group_size} trajectories.
- Data: `{provenance.data}`, {provenance.questions} questions; {config.validation_size} others validate.
- Steps: {result.steps} in {result.seconds / 60:.1f} minutes. It ended because: {result.reason}.
- The sampler of step {result.best.step} was kept, the best by validation pass@{budget}.
- Different from the paper's settings: {changed}.
- Command: `{provenance.command}`

## Measured on the validation questions
| | pass@{budget} | pass@{k} | mean@1 | confidence |
|---|---|---|---|---|
| before training (log σ = {config.log_std_bias:g}) | {_row(result.untrained)} |
| trained | {_row(result.best)} |

The unperturbed trajectory answers {result.deterministic:.3f} of them. Validation chose the sampler, so
these figures flatter it: judge it by a test split.

## Limits
It was rewarded for right answers on data like the above, and knows nothing of other tasks. Its
density is a diagonal Gaussian. It is bound to the reasoner's weights by their fingerprint.
"""


def _row(v: Validation) -> str:
    return f"{v.pass_at_n:.3f} | {v.pass_at_k:.3f} | {v.mean_at_1:.3f} | {v.confidence:.3f}"
