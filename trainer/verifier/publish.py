"""Writes what a finished verifier run leaves: weights, JSON card and model card."""

from pathlib import Path
from typing import Any

from latent.files import write_text
from latent.verifier import Verifier, save_verifier
from latent.verifier_file import VerifierCard

__all__ = ["model_card", "publish", "verdict"]


def publish(
    out: Path,
    verifier: Verifier,
    *,
    fingerprint: str,
    training: dict[str, Any],
    results: dict[str, Any],
) -> None:
    """Write model card, weights and JSON card, in this order: a verifier is found by its JSON card."""
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / "README.md", model_card(verifier, training, results))
    save_verifier(out, verifier, VerifierCard(verifier.shape, fingerprint, training, results))


def verdict(results: dict[str, Any]) -> str:
    """One line: is the verifier's vote better than the majority?"""
    budget, found = list(results["against_majority"].items())[-1]
    points = f"{_signed(found['value'])} points [{_signed(found['low'])}, {_signed(found['high'])}]"
    how = f"with {budget} trajectories, {points} on {results['questions']} questions"
    if found["low"] > 0:
        return f"the verifier's vote is better than the majority: {how}"
    if found["high"] < 0:
        return f"the verifier's vote is worse than the majority: {how}; do not use it"
    return f"the verifier's vote is not clearly better than the majority: {how}"


def model_card(verifier: Verifier, training: dict[str, Any], results: dict[str, Any]) -> str:
    """Markdown text of the model card: recipe, validation figures and limits."""
    reasoner, config, shape = training["reasoner"], training["config"], verifier.shape
    count = sum(parameter.numel() for parameter in verifier.parameters())
    data, within = training["data"], results["auc_within_question"]
    rows = "\n".join(_row(results, budget) for budget in results["majority"])
    return f"""# Verifier for {reasoner}

Scores the trajectories of `{reasoner}`, and of no other reasoner, for the vote `verifier`: the scores
of an answer's trajectories are added up, and the answer with the highest sum wins.

## Recipe
- Reads {shape.thoughts + 1 + shape.answer_tokens} states of the reasoner: before the first thought,
  after each of {shape.thoughts}, and those that the first {shape.answer_tokens} tokens of the text are
  chosen from, with the log-probabilities of these tokens. {count:,} parameters.
- Loss: for every right and every wrong trajectory of a question, −log of the probability that the
  right one wins, by the difference of their logits (a ranking loss). A score is exp(logit / 2).
- Data: `{data}`, {training["questions"]} questions × {config["lanes"]} trajectories with sampler
  `{training["sampler"]}`; it learned from the {training["mixed"]} that have right and wrong ones, in
  {config["epochs"]} epochs. Time: {training["seconds"] / 60:.1f} minutes.
- Command: `{training["command"]}`

## Measured on {results["questions"]} validation questions, % right
| trajectories | majority | by confidence | verifier | verifier − majority | one is right |
|---|---|---|---|---|---|
{rows}

In brackets: 95% bootstrap intervals, paired by question for the difference. The probability that a
right trajectory scores above a wrong one (AUC) is {_share(within)} within a question and
{_share(results["auc"])} over all.

## Limits
It learned on data like the above, and knows nothing of other tasks. Its scores compare trajectories
of one question; they are no probabilities. It is bound to the reasoner's weights by their fingerprint.
"""


def _row(results: dict[str, Any], budget: str) -> str:
    votes = [f"{results[name][budget]['value']:.1%}" for name in ("majority", "confidence")]
    own, gap = results["verifier"][budget], results["against_majority"][budget]
    cells = [
        budget,
        *votes,
        f"{own['value']:.1%} [{own['low']:.1%}, {own['high']:.1%}]",
        f"{_signed(gap['value'])} [{_signed(gap['low'])}, {_signed(gap['high'])}]",
        f"{results['pass'][budget]['value']:.1%}",
    ]
    return "| " + " | ".join(cells).replace("%", "") + " |"


def _signed(share: float) -> str:
    return f"{100 * share:+.1f}"


def _share(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3f}"
