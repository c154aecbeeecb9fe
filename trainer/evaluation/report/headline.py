"""The few sentences and numbers that a report opens with."""

from trainer.evaluation.report.cells import Cell, decimal, percent
from trainer.evaluation.report.findings import Paired, Run, SamplerResult
from trainer.evaluation.report.tables import best

__all__ = ["headline", "key_numbers"]


def headline(run: Run) -> str:
    """Say in a few sentences what came out, whichever way."""
    sentences = [
        f"One deterministic trajectory of {run.model.name} answers {_share(run.accuracy.value)} of "
        f"{run.rows:,} questions right."
    ]
    hero = _hero(run)
    if hero is None:
        return sentences[0]
    last = max(hero.pass_at)
    sentences.append(
        f"Among {last} trajectories drawn with {hero.spec} at least one is right for "
        f"{_share(hero.pass_at[last].value)}" + _majority(hero) + "."
    )
    rival = _rival(run, hero)
    if rival is not None:
        sentences.append(_compared(run, hero, rival))
    return " ".join(sentences)


def key_numbers(run: Run) -> list[tuple[str, Cell]]:
    """Give the numbers to print large, with their intervals."""
    shown = [("deterministic accuracy, %", percent(run.accuracy))]
    hero = _hero(run)
    if hero is None:
        return shown
    last = max(hero.pass_at)
    shown.append((f"pass@{last} of {hero.spec}, %", percent(hero.pass_at[last])))
    majority = hero.votes.get("majority")
    if majority:
        at = max(majority)
        shown.append((f"majority@{at} of {hero.spec}, %", percent(majority[at])))
    if hero.gain is not None:
        shown.append((f"sampling gain (SG) of {hero.spec}", decimal(hero.gain)))
    return shown


def _hero(run: Run) -> SamplerResult | None:
    """The sampler to talk of: the first learned one, else the best."""
    if run.learned:
        return run.learned[0]
    return best(run.sampling) if run.sampling else None


def _rival(run: Run, hero: SamplerResult) -> SamplerResult | None:
    others = [one for one in run.sampling if not one.is_learned and one is not hero]
    return best(others) if others and hero.is_learned else None


def _compared(run: Run, hero: SamplerResult, rival: SamplerResult) -> str:
    measure = f"pass@{max(hero.pass_at)}"
    pair = _find(run, hero, rival, measure)
    if pair is None:
        return f"The best of the other samplers is {rival.spec}."
    difference = pair.difference
    low, high = difference.low * 100, difference.high * 100
    interval = f"95% interval {low:+.1f} to {high:+.1f}".replace("-", "−")
    if not difference.is_clear_of_zero:
        return (
            f"Its {measure} is not clearly different from that of {rival.spec}, the best of the "
            f"others ({interval} points)."
        )
    word = "higher" if difference.value > 0 else "lower"
    return (
        f"Its {measure} is {abs(difference.value) * 100:.1f} points {word} than that of "
        f"{rival.spec}, the best of the others ({interval})."
    )


def _find(run: Run, hero: SamplerResult, rival: SamplerResult, measure: str) -> Paired | None:
    wanted = (rival.spec, hero.spec, measure)
    found = (p for p in run.paired if (p.sampler, p.against, p.measure) == wanted)
    return next(found, None)


def _majority(hero: SamplerResult) -> str:
    series = hero.votes.get("majority")
    if not series:
        return ""
    return f", and their majority is right for {_share(series[max(series)].value)}"


def _share(value: float) -> str:
    return f"{value * 100:.1f}%"
