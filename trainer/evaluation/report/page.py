"""Writes report.html and the figures of one evaluation, and the sentences the report opens with.

The layout is in templates/, which also escape all text.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from trainer.evaluation.report.figures import draw_figures
from trainer.evaluation.report.plotting import Absent, Drawing, theme_css
from trainer.evaluation.report.tables import (
    Cell,
    accuracy_table,
    command,
    config_table,
    cost_table,
    decimal,
    malformed_table,
    operations_table,
    paired_table,
    parameters,
    pass_at_table,
    percent,
    quality_table,
    seed_table,
    stop_table,
)
from trainer.evaluation.summary import SamplerResult, Summary, read_run, read_snr
from trainer.runs.output_folder import write_file

__all__ = ["headline", "key_numbers", "render_page", "write_page", "write_report"]


def write_report(out: Path) -> Path:
    """Write figures/*.png, figures/*.svg and report.html of the run in `out`; return the page."""
    run = read_run(out)
    figures = draw_figures(run, read_snr(out / "results.jsonl"))
    return write_page(
        out,
        "report.html.j2",
        figures,
        title=f"{run.model.name} on {run.data.name}",
        description=_description(run),
        headline=headline(run),
        key_numbers=key_numbers(run),
        tables=[
            accuracy_table(run),
            operations_table(run),
            pass_at_table(run),
            quality_table(run),
            *([] if (stops := stop_table(run)) is None else [stops]),
            *(seed_table(one) for one in run.seeds),
            paired_table(run),
            cost_table(run),
        ],
        word_tables=[malformed_table(run), config_table(run)],
        command=command(run, "DIR"),
    )


def write_page(
    out: Path, template: str, figures: Sequence[Drawing | Absent], **values: Any
) -> Path:
    """Write report.html and its figures as PNG and SVG into `out`; return the page."""
    for one in figures:
        if isinstance(one, Drawing):
            one.picture.save(out / "figures")
    page = render_page(template, theme=theme_css(), figures=figures, **values)
    write_file(out / "report.html", page.encode())
    return out / "report.html"


def render_page(template: str, **values: Any) -> str:
    """Render a template of this package; in HTML, text is escaped unless it is Markup."""
    environment = Environment(
        loader=PackageLoader("trainer.evaluation.report"),
        autoescape=lambda name: name is None or ".html." in name,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )
    return environment.get_template(template).render(values)


def _description(run: Summary) -> str:
    model, data = run.model, run.data
    thoughts = f"{model.thoughts} thoughts" if model.thoughts else "text"
    return (
        f"{model.kind}, {thoughts}, width {model.width}, {parameters(model.parameters)} parameters, "
        f"fingerprint {model.fingerprint[:12]}; {data.rows:,} questions, "
        f"{len(data.malformed)} malformed rows, budget {run.config.budget}, seed {run.config.seed}"
    )


def headline(run: Summary) -> str:
    """The main result in a few sentences, whether or not the learned sampler is better."""
    sentences = [
        f"One deterministic trajectory of {run.model.name} answers {_share(run.accuracy.value)} of "
        f"{run.data.rows:,} questions right."
    ]
    main = _main_sampler(run)
    if main is None:
        return sentences[0]
    found = (
        f"Among {max(main.pass_at)} trajectories drawn with {main.spec} at least one is right for "
        f"{_share(main.largest_pass_at.value)}"
    )
    if main.majority:
        majority = main.majority[max(main.majority)].value
        found += f", and their majority is right for {_share(majority)}"
    sentences.append(f"{found}.")
    baseline = _best_baseline(run, main)
    if baseline is not None:
        sentences.append(_compared(run, main, baseline))
    return " ".join(sentences)


def key_numbers(run: Summary) -> list[tuple[str, Cell]]:
    """The numbers to print large, with their intervals."""
    shown = [("deterministic accuracy, %", percent(run.accuracy))]
    main = _main_sampler(run)
    if main is None:
        return shown
    last = max(main.pass_at)
    shown.append((f"pass@{last} of {main.spec}, %", percent(main.largest_pass_at)))
    if main.majority:
        at = max(main.majority)
        shown.append((f"majority@{at} of {main.spec}, %", percent(main.majority[at])))
    if main.gain is not None:
        shown.append((f"sampling gain (SG) of {main.spec}", decimal(main.gain)))
    return shown


def _main_sampler(run: Summary) -> SamplerResult | None:
    """The first learned sampler, else the best one."""
    if run.learned:
        return run.learned[0]
    return _best(run.sampling) if run.sampling else None


def _best_baseline(run: Summary, main: SamplerResult) -> SamplerResult | None:
    others = [one for one in run.sampling if not one.is_learned and one is not main]
    return _best(others) if others and main.is_learned else None


def _compared(run: Summary, main: SamplerResult, baseline: SamplerResult) -> str:
    measure = f"pass@{max(main.pass_at)}"
    wanted = (baseline.spec, main.spec, measure)
    pair = next((p for p in run.paired if (p.sampler, p.against, p.measure) == wanted), None)
    if pair is None:
        return f"The best of the other samplers is {baseline.spec}."
    difference = pair.interval
    low, high = difference.low * 100, difference.high * 100
    interval = f"95% interval {low:+.1f} to {high:+.1f}".replace("-", "−")
    if not difference.excludes_zero:
        return (
            f"Its {measure} is not clearly different from that of {baseline.spec}, the best of the "
            f"others ({interval} points)."
        )
    word = "higher" if difference.value > 0 else "lower"
    return (
        f"Its {measure} is {abs(difference.value) * 100:.1f} points {word} than that of "
        f"{baseline.spec}, the best of the others ({interval})."
    )


def _share(value: float) -> str:
    return f"{value * 100:.1f}%"


def _best(samplers: Sequence[SamplerResult]) -> SamplerResult:
    """The sampler with the highest pass@N at its largest N; the first of equals."""
    return max(samplers, key=lambda one: one.largest_pass_at.value)
