"""How much of a sampler's first gradient is signal: what there is to learn, before any training.

    python -m benchmarks.gradient_signal --model codi-tiny [--batches 100] [--log-std-bias -0.7]

Draws batches of trajectories under the untrained sampler and takes each batch's policy gradient. What
the batches agree on is signal; an unbiased estimate of its share of the squared length is
(‖Σg‖² − Σ‖g‖²) / (B − 1) Σ‖g‖². Beside it stands how many standard errors that is, from the same
estimate after random signs, where no signal is left. The two heads stand apart: where to go, how far.
"""

import argparse
from dataclasses import replace

import torch

from latent.samplers import GaussianThoughtSampler
from latent.store import load_reasoner
from latent.zoo import resolve_model
from trainer.data.questions import draws_of, load_questions
from trainer.runs.progress import Progress
from trainer.sampler.config import PRESETS, SamplerConfig
from trainer.sampler.episodes import Episodes, ReasonerEnvironment
from trainer.sampler.objective import trajectory_log_prob
from trainer.sampler.rewards import score

OURS = PRESETS["default"]
OBJECTIVES = {
    "mean, α=0": replace(OURS, objective="mean", alpha=0.0),
    "pass@8, α=0": replace(OURS, alpha=0.0),
    "pass@8, α=0.2": OURS,
    "shaping only": replace(OURS, alpha=1e6),
}
SHUFFLES = 100


def main() -> None:
    """Measure one reasoner."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="codi-tiny")
    parser.add_argument("--batches", type=int, default=100)
    parser.add_argument("--log-std-bias", type=float, default=-0.7)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    environment = ReasonerEnvironment(load_reasoner(resolve_model(options.model)))
    heads = environment.new_heads(options.log_std_bias)
    questions = load_questions("embedded", None, OURS.validation_size, OURS.seed).train
    found: dict[tuple[str, str], list[torch.Tensor]] = {}
    right = drawn = 0
    with Progress(options.batches, 0) as progress:
        for batch in range(options.batches):
            draws = draws_of(questions, batch, OURS.prompts, OURS.seed)
            episodes = environment.sample(heads, draws, OURS.group_size)
            for key, gradient in gradients(heads, episodes).items():
                found.setdefault(key, []).append(gradient)
            right += int(episodes.is_correct.sum())
            drawn += episodes.is_correct.numel()
            progress.show(batch + 1, {"mean@1": right / drawn})
    print(f"{options.model}: {drawn} trajectories, mean@1 {right / drawn:.3f}")
    for (name, head), batches in found.items():
        share, errors = signal(torch.stack(batches))
        print(f"{name:14} {head:8} signal {share:+.5f} ({errors:+.1f} standard errors)")


def gradients(
    heads: GaussianThoughtSampler, episodes: Episodes
) -> dict[tuple[str, str], torch.Tensor]:
    """Gradient of each head under each objective; before training only the last layers have one."""
    contexts, drawn = episodes.contexts.flatten(0, 1), episodes.perturbations.flatten(0, 1)
    log_prob = trajectory_log_prob(heads, contexts, drawn)
    parts = {
        "mean": list(heads.mean[-1].parameters()),
        "log σ": list(heads.log_std[-1].parameters()),
    }
    wanted = [parameter for part in parts.values() for parameter in part]
    found = {}
    for name, config in OBJECTIVES.items():
        weights = _weights(episodes, config, log_prob)
        slopes = iter(torch.autograd.grad(log_prob, wanted, weights, retain_graph=True))
        for head, part in parts.items():
            found[name, head] = torch.cat([next(slopes).flatten() for _ in part])
    return found


def signal(batches: torch.Tensor) -> tuple[float, float]:
    """Share of squared gradient length that batches (B, P) agree on, and its standard error."""
    whole = batches.square().sum()

    def share(gradients: torch.Tensor) -> torch.Tensor:
        together = gradients.sum(0).square().sum()
        return (together - whole) / (whole * (len(gradients) - 1))

    generator = torch.Generator().manual_seed(0)
    signs = torch.randint(0, 2, (SHUFFLES, len(batches), 1), generator=generator) * 2.0 - 1.0
    spread = torch.stack([share(batches * flips) for flips in signs]).std()
    return float(share(batches)), float(share(batches) / spread)


def _weights(episodes: Episodes, config: SamplerConfig, like: torch.Tensor) -> torch.Tensor:
    advantages = score(episodes.is_correct, episodes.logprobs, config).advantages
    return advantages.flatten().to(like) / len(like)


if __name__ == "__main__":
    main()
