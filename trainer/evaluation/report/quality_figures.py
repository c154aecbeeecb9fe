"""Figures of how samplers behave: signal to noise, the reward ablation, calibration."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from trainer.evaluation.report.drawing import (
    DETERMINISTIC,
    WIDTH,
    Absent,
    Drawing,
    final_values,
    run_looks,
)
from trainer.evaluation.report.findings import Run
from trainer.evaluation.report.panels import (
    budget_axis,
    draw_baseline,
    draw_counts,
    draw_interval,
    draw_reliability,
    draw_series,
    draw_violins,
    legend,
    legend_rows,
)
from trainer.evaluation.report.style import render, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["ablation_figure", "calibration_figure", "snr_figure"]


def snr_figure(run: Run, snr: Mapping[str, Sequence[Sequence[float]]]) -> Drawing | Absent:
    """Draw the spread of SNR at each thought, a panel for each learned sampler."""
    title = "Signal to noise"
    measured = [one.spec for one in run.learned if snr.get(one.spec)]
    if not run.learned:
        return Absent(title, "no learned sampler was measured")
    if not measured:
        return Absent(title, "results.jsonl is not here, or holds no SNR")
    styles = run_looks(run)

    def draw(figure: "Figure", panels: "list[Axes]") -> None:
        for axes, spec in zip(panels, measured, strict=True):
            draw_violins(axes, snr[spec], styles[spec])
            axes.set_title(short(spec))
        panels[0].set_ylabel("SNR = rms μ / rms σ")
        panels[0].set_ylim(bottom=0)

    return Drawing(
        title,
        "The sampler's signal-to-noise ratio at each thought, spread over questions, medians "
        "joined; above the dotted line at 1 it steers more than it scatters.",
        f"Violin plots of SNR per thought for {', '.join(measured)}.",
        render("snr", (WIDTH, 3.2), (1, len(measured)), draw, sharey=True),
    )


def ablation_figure(run: Run) -> Drawing | Absent:
    """Draw the learned samplers alone, side by side."""
    title = "Learned samplers side by side"
    if len(run.learned) < 2:
        return Absent(title, "it needs two learned samplers, as in --samplers gts,gts:./OTHER")
    every = run_looks(run)
    styles = {one.spec: every[one.spec] for one in run.learned}

    def draw(figure: "Figure", panels: "list[Axes]") -> None:
        for axes, name in zip(panels[:2], ("pass@N, %", "majority@N, %"), strict=True):
            for one in run.learned:
                series = one.pass_at if axes is panels[0] else one.votes.get("majority", {})
                draw_series(axes, series, styles[one.spec])
            draw_baseline(axes, run.accuracy)
            budget_axis(axes, (n for one in run.learned for n in one.pass_at), is_narrow=True)
            axes.set_title(name)
        for axes, name in zip(panels[2:], ("gain", "js"), strict=True):
            for place, one in enumerate(run.learned):
                interval = getattr(one, name)
                if interval is not None:
                    draw_interval(axes, place, interval, styles[one.spec])
            axes.set_title({"gain": "SG", "js": "JS, nats"}[name])
            axes.set_xticks([])
            axes.margins(x=0.4, y=0.2)
        legend(figure, styles, baseline=DETERMINISTIC)

    return Drawing(
        title,
        "Samplers trained in different ways (such as with and without reward shaping): pass@N, "
        "majority@N, and SG and JS with their 95% intervals.",
        f"Line charts of pass@N and majority@N, and values of SG and JS. "
        f"{final_values(run.learned)}",
        render(
            "reward-ablation",
            (WIDTH, 3.2 + 0.2 * legend_rows(styles)),
            (1, 4),
            draw,
            width_ratios=[3, 3, 1.2, 1.2],
        ),
    )


def calibration_figure(run: Run) -> Drawing | Absent:
    """Draw how often the majority is right against its share."""
    title = "Calibration"
    measured = [
        (one.spec, one.calibration["majority"])
        for one in run.sampling
        if "majority" in one.calibration
    ]
    if not measured:
        return Absent(title, "no majority vote was measured")
    styles = run_looks(run)
    columns = min(4, len(measured))
    bands = -(-len(measured) // columns)  # each a row of diagrams over a row of counts

    def draw(_: "Figure", panels: "list[Axes]") -> None:
        for place, (spec, one) in enumerate(measured):
            band, column = divmod(place, columns)
            upper = panels[2 * band * columns + column]
            lower = panels[(2 * band + 1) * columns + column]
            draw_reliability(upper, one, styles[spec])
            draw_counts(lower, one, styles[spec])
            upper.set_title(f"{short(spec)}\nECE {one.ece:.3f}")
            if column == 0:
                upper.set_ylabel("winner is right, %")
                lower.set_ylabel("questions")
        for place in range(len(measured), bands * columns):
            band, column = divmod(place, columns)
            panels[2 * band * columns + column].set_visible(False)
            panels[(2 * band + 1) * columns + column].set_visible(False)

    errors = "; ".join(f"{spec} {one.ece:.3f}" for spec, one in measured)
    return Drawing(
        title,
        f"How often the majority's winner at N = {run.budget} is right against its share of the "
        "votes; on the dotted diagonal the share is an honest probability. Below: questions per bin.",
        f"Reliability diagrams of the majority vote. Expected calibration error: {errors}.",
        render(
            "calibration",
            (WIDTH, 3.6 * bands),
            (2 * bands, columns),
            draw,
            sharex=True,
            height_ratios=[3, 1] * bands,
        ),
    )
