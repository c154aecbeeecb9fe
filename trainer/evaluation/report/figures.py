"""The figures of one evaluation: pass@N, unique answers, votes, SNR, learned samplers, calibration."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trainer.evaluation.report.plotting import (
    Absent,
    Drawing,
    Panel,
    SeriesStyle,
    budget_axis,
    draw_baseline,
    draw_series,
    legend,
    legend_rows,
    render_panels,
    series_styles,
    shorten,
)
from trainer.evaluation.report.tables import measured_votes
from trainer.evaluation.statistics import Interval, Reliability, wilson_interval
from trainer.evaluation.summary import SamplerResult, Summary
from trainer.runs.pictures import INK, MUTED, WIDTH, render

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_figures", "pass_at_figure"]

_NO_SAMPLES = "no sampler that draws was measured"


def draw_figures(
    run: Summary, snr: Mapping[str, Sequence[Sequence[float]]]
) -> list[Drawing | Absent]:
    """Draw all figures in the order of the page; `snr` is (questions, thoughts) by sampler."""
    run = run.first_seeds()
    return [
        pass_at_figure(run),
        _unique_figure(run),
        _votes_figure(run),
        _snr_figure(run, snr),
        _ablation_figure(run),
        _calibration_figure(run),
    ]


def pass_at_figure(run: Summary) -> Drawing | Absent:
    """pass@N against N."""
    title = "pass@N"
    if not run.sampling:
        return Absent(title, _NO_SAMPLES)
    panel = Panel("", [(one.spec, one.pass_at) for one in run.sampling], run.accuracy)
    ylabel = "questions with a right answer, %"
    return Drawing(
        title,
        "The share of questions with at least one right answer among N trajectories (unbiased over "
        "subsets), with 95% bands; at N = 1 it is the accuracy of one sample, and the dotted line "
        "is that of the deterministic trajectory.",
        f"Line chart of pass@N against N. {_final_values(run.sampling)}",
        render_panels("pass-at", [panel], _styles(run), ylabel=ylabel, heights=(4.0, 0.0)),
    )


def _unique_figure(run: Summary) -> Drawing | Absent:
    title = "Unique answers"
    if not run.sampling:
        return Absent(title, _NO_SAMPLES)
    curves = [(one.spec, one.unique) for one in run.sampling]
    final = "; ".join(f"{spec} {series[max(series)].value:.1f}" for spec, series in curves)
    return Drawing(
        title,
        "How many different answers N trajectories give to a question, on average; more is not "
        "better by itself.",
        f"Line chart of unique answers against N. At the largest N: {final}.",
        render_panels(
            "unique-answers",
            [Panel("", curves)],
            _styles(run),
            ylabel="different answers per question",
            heights=(3.2, 0.0),
            scale=1.0,
        ),
    )


def _votes_figure(run: Summary) -> Drawing | Absent:
    title = "Votes"
    votes = measured_votes(run)
    if not votes:
        return Absent(title, _NO_SAMPLES)
    panels = [
        Panel(
            vote,
            [(one.spec, one.votes[vote]) for one in run.sampling if one.votes.get(vote)],
            run.accuracy,
        )
        for vote in votes
    ]
    majority = "; ".join(
        f"{one.spec} {one.majority[max(one.majority)].value:.1%}"
        for one in run.sampling
        if one.majority
    )
    return Drawing(
        title,
        "The share of questions that each vote of N trajectories answers right, with 95% bands; "
        "the dotted line is the deterministic trajectory's.",
        f"Line charts of the accuracy of {', '.join(votes)} against N. "
        f"Majority at the largest N: {majority or 'not measured'}.",
        render_panels(
            "votes",
            panels,
            _styles(run),
            ylabel="questions answered right, %",
            max_columns=2,
            heights=(2.5, 0.5),
        ),
    )


def _snr_figure(run: Summary, snr: Mapping[str, Sequence[Sequence[float]]]) -> Drawing | Absent:
    """Signal-to-noise ratio at each thought, a panel for each learned sampler."""
    title = "Signal to noise"
    measured = [one.spec for one in run.learned if snr.get(one.spec)]
    if not run.learned:
        return Absent(title, "no learned sampler was measured")
    if not measured:
        return Absent(title, "results.jsonl is not here, or holds no SNR")
    styles = _styles(run)

    def draw(_: "Figure", panels: "list[Axes]") -> None:
        for axes, spec in zip(panels, measured, strict=True):
            _draw_violins(axes, snr[spec], styles[spec])
            axes.set_title(shorten(spec))
        panels[0].set_ylabel("SNR = rms μ / rms σ")
        panels[0].set_ylim(bottom=0)

    return Drawing(
        title,
        "The sampler's signal-to-noise ratio at each thought, spread over questions, medians "
        "joined; above the dotted line at 1 the mean shift is larger than the noise.",
        f"Violin plots of SNR per thought for {', '.join(measured)}.",
        render("snr", (WIDTH, 3.2), (1, len(measured)), draw, sharey=True),
    )


def _ablation_figure(run: Summary) -> Drawing | Absent:
    """The learned samplers alone: pass@N, majority@N, SG and JS."""
    title = "Learned samplers side by side"
    if len(run.learned) < 2:
        return Absent(title, "it needs two learned samplers, as in --samplers gts,gts:./OTHER")
    every = _styles(run)
    styles = {one.spec: every[one.spec] for one in run.learned}

    def draw(figure: "Figure", panels: "list[Axes]") -> None:
        for axes, name in zip(panels[:2], ("pass@N, %", "majority@N, %"), strict=True):
            for one in run.learned:
                series = one.pass_at if axes is panels[0] else one.majority
                draw_series(axes, series, styles[one.spec])
            draw_baseline(axes, run.accuracy)
            budget_axis(axes, (n for one in run.learned for n in one.pass_at), is_narrow=True)
            axes.set_title(name)
        for axes, name in zip(panels[2:], ("SG", "JS, nats"), strict=True):
            for place, one in enumerate(run.learned):
                interval = one.gain if name == "SG" else one.js
                if interval is not None:
                    _draw_interval(axes, place, interval, styles[one.spec])
            axes.set_title(name)
            axes.set_xticks([])
            axes.margins(x=0.4, y=0.2)
        legend(figure, styles, has_baseline=True)

    size = (WIDTH, 3.2 + 0.2 * legend_rows(styles))
    return Drawing(
        title,
        "Samplers trained in different ways (such as with and without reward shaping): pass@N, "
        "majority@N, and SG and JS with their 95% intervals.",
        f"Line charts of pass@N and majority@N, and values of SG and JS. "
        f"{_final_values(run.learned)}",
        render("reward-ablation", size, (1, 4), draw, width_ratios=[3, 3, 1.2, 1.2]),
    )


def _calibration_figure(run: Summary) -> Drawing | Absent:
    """Reliability diagrams of what is served as the confidence, above the questions per bin.

    That is the calibrated probability, or the share of the vote where there is none.
    """
    title = "Calibration"
    measured = [
        (one.spec, one.calibration.get("served", one.calibration["majority"]))
        for one in run.sampling
        if "majority" in one.calibration
    ]
    calibrated = {one.spec for one in run.sampling if "served" in one.calibration}
    if not measured:
        return Absent(title, "no majority vote was measured")
    styles = _styles(run)
    columns = min(4, len(measured))
    bands = -(-len(measured) // columns)  # a band is a row of diagrams and a row of counts

    def draw(_: "Figure", panels: "list[Axes]") -> None:
        for place in range(bands * columns):
            band, column = divmod(place, columns)
            upper = panels[2 * band * columns + column]
            lower = panels[(2 * band + 1) * columns + column]
            if place >= len(measured):
                upper.set_visible(False)
                lower.set_visible(False)
                continue
            spec, one = measured[place]
            _draw_reliability(upper, one, styles[spec])
            _draw_counts(lower, one, styles[spec])
            is_calibrated = spec in calibrated
            lower.set_xlabel("confidence, %" if is_calibrated else "share of the winner, %")
            upper.set_title(f"{shorten(spec)}\nECE {one.ece:.3f}")
            if column == 0:
                upper.set_ylabel("winner is right, %")
                lower.set_ylabel("questions")

    errors = "; ".join(f"{spec} {one.ece:.3f}" for spec, one in measured)
    shape, ratios = (2 * bands, columns), [3, 1] * bands
    return Drawing(
        title,
        f"How often the majority's winner at N = {run.config.budget} is right against the confidence "
        "that is served, which is its share of the votes for samplers that are not calibrated; with "
        "95% intervals. On the dotted diagonal it is the probability of being right. Below: "
        "questions per bin.",
        f"Reliability diagrams of the majority vote. Expected calibration error: {errors}.",
        render("calibration", (WIDTH, 3.6 * bands), shape, draw, sharex=True, height_ratios=ratios),
    )


def _draw_interval(axes: "Axes", place: int, measured: Interval, style: SeriesStyle) -> None:
    """Draw a value with its interval as a vertical bar."""
    axes.plot([place, place], [measured.low, measured.high], color=style.colour, linewidth=2)
    axes.plot([place], [measured.value], color=style.colour, marker=style.marker, markersize=7)


def _draw_violins(axes: "Axes", questions: Sequence[Sequence[float]], style: SeriesStyle) -> None:
    """Draw the distribution over questions for each thought; input (questions, thoughts)."""
    thoughts = [list(column) for column in zip(*questions, strict=True)]
    places = list(range(1, len(thoughts) + 1))
    drawn: Any = axes.violinplot(thoughts, places, widths=0.8, showextrema=False)
    for body in drawn["bodies"]:
        body.set(facecolor=style.colour, edgecolor=style.colour, alpha=0.35)
    medians = [sorted(column)[len(column) // 2] for column in thoughts]
    axes.plot(places, medians, color=style.colour, marker=style.marker, linewidth=0.9)
    axes.axhline(1.0, color=MUTED, linewidth=0.9, linestyle=":")
    axes.set_xticks(places)
    axes.set_xlabel("thought")


def _draw_reliability(axes: "Axes", measured: Reliability, style: SeriesStyle) -> None:
    """Draw accuracy against confidence; the diagonal is perfect calibration."""
    points = []
    for one in measured.bins:
        if one.share is not None and one.accuracy is not None:
            points.append((one.share * 100, one.accuracy * 100))
            low, high = wilson_interval(one.accuracy, one.count)
            ends = [low * 100, high * 100]
            axes.plot([one.share * 100] * 2, ends, color=style.colour, linewidth=1, alpha=0.5)
    axes.plot([0, 100], [0, 100], color=MUTED, linewidth=0.9, linestyle=":")
    axes.plot(
        [share for share, _ in points],
        [accuracy for _, accuracy in points],
        color=style.colour,
        linestyle=style.dash,
        marker=style.marker,
    )
    axes.set_xlim(-3, 103)
    axes.set_ylim(-3, 103)
    axes.set_xticks([0, 50, 100])
    axes.set_yticks([0, 25, 50, 75, 100])


def _draw_counts(axes: "Axes", measured: Reliability, style: SeriesStyle) -> None:
    """Draw the number of questions in each bin."""
    for one in measured.bins:
        middle, width = (one.low + one.high) * 50, (one.high - one.low) * 90
        axes.bar([middle], [one.count], width=width, color=style.colour, alpha=0.45)
        if one.count:
            axes.annotate(
                str(one.count),
                (middle, one.count),
                xytext=(0, 2),
                textcoords="offset points",
                ha="center",
                fontsize=6,
                color=INK,
            )
    axes.tick_params(labelbottom=True)  # in every row of panels, not only the last
    axes.margins(y=0.25)
    axes.set_yticks([])
    axes.grid(visible=False)


def _styles(run: Summary) -> dict[str, SeriesStyle]:
    return series_styles([one.spec for one in run.sampling], [one.spec for one in run.learned])


def _final_values(samplers: Sequence[SamplerResult]) -> str:
    """pass@N of each sampler at its largest N, for the alternative text of a figure."""
    ends = (f"{s.spec} pass@{max(s.pass_at)} {s.largest_pass_at.value:.1%}" for s in samplers)
    return "; ".join(ends) + "."
