"""Draws the curves of a backbone run from its log."""

from pathlib import Path

from trainer.runs.checkpoint import read_log


def draw_backbone_curves(log: Path, picture: Path) -> None:
    """Plot the losses and the validation accuracy over the steps, stages marked."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    records = read_log(log)
    figure = Figure(figsize=(8, 6), layout="constrained")
    FigureCanvasAgg(figure)
    upper, lower = figure.subplots(2, 1, sharex=True)
    for name in ("loss", "teacher", "student", "distance"):
        points = [(record["step"], record[name]) for record in records if name in record]
        if points:
            upper.plot(*zip(*points, strict=True), label=name, linewidth=1)
    upper.set_yscale("log")
    upper.set_ylabel("loss")
    upper.legend()
    points = [(record["step"], record["accuracy"]) for record in records if "accuracy" in record]
    lower.plot(*zip(*points, strict=True), marker=".")
    lower.set_ylabel("validation accuracy, as the stage answers")
    lower.set_xlabel("step")
    lower.set_ylim(0, 1)
    edges = {record["stage"]: record["step"] for record in records}
    for axes in (upper, lower):
        for edge in edges.values():
            axes.axvline(edge, color="grey", linewidth=0.5, linestyle="--")
    figure.savefig(picture, dpi=120)
