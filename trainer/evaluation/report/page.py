"""Writes report.html and the figures of one evaluation from its own files."""

from collections.abc import Iterable
from pathlib import Path

from latent.errors import InputError
from latent.files import write_atomically
from trainer.evaluation.report import html
from trainer.evaluation.report.cells import parameters
from trainer.evaluation.report.drawing import Absent, Drawing
from trainer.evaluation.report.figures import draw_figures
from trainer.evaluation.report.findings import Run
from trainer.evaluation.report.headline import headline, key_numbers
from trainer.evaluation.report.reading import read_run, read_snr
from trainer.evaluation.report.tables import (
    accuracy_table,
    command,
    config_table,
    cost_table,
    malformed_table,
    operations_table,
    paired_table,
    pass_at_table,
    quality_table,
    seed_tables,
)

__all__ = ["write_figures", "write_page", "write_report"]


def write_report(out: Path) -> Path:
    """Draw the run in `out`: figures/*.png, figures/*.svg and report.html, whose path it gives."""
    run = read_run(out)
    drawn = draw_figures(run, read_snr(out / "results.jsonl"))
    write_figures(drawn, out / "figures")
    path = out / "report.html"
    write_page(path, _page(run, drawn))
    return path


def write_figures(drawn: Iterable[Drawing | Absent], folder: Path) -> None:
    """Write each picture as PNG and SVG."""
    for one in drawn:
        if isinstance(one, Drawing):
            picture = one.picture
            write_page(folder / f"{picture.name}.svg", picture.svg)
            _write(folder / f"{picture.name}.png", picture.png)


def write_page(path: Path, text: str) -> None:
    """Write text, atomically."""
    _write(path, text.encode())


def _write(path: Path, content: bytes) -> None:
    try:
        write_atomically(path, lambda temporary: _fill(temporary, content))
    except OSError as error:
        raise InputError(f"{path} can't be written: {error.strerror}", param="out") from error


def _fill(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def _page(run: Run, drawn: list[Drawing | Absent]) -> str:
    model = run.model
    title = f"{model.name} on {run.data_name}"
    thoughts = f"{model.thoughts} thoughts" if model.thoughts else "text"
    facts = (
        f"{model.kind}, {thoughts}, width {model.width}, {parameters(model.parameters)} parameters, "
        f"fingerprint {model.fingerprint[:12]}; {run.rows:,} questions, "
        f"{len(run.malformed)} malformed rows, budget {run.budget}, seed {run.config['seed']}"
    )
    numbers = [accuracy_table(run), operations_table(run), pass_at_table(run), quality_table(run)]
    numbers += [*seed_tables(run), paired_table(run), cost_table(run)]
    words = [malformed_table(run), config_table(run)]
    return html.page(
        title,
        [
            html.heading(title, 1),
            html.paragraph(facts, "soft"),
            html.paragraph(headline(run), "lead"),
            html.tiles(key_numbers(run)),
            *(html.figure(one) for one in drawn),
            *(html.table(one) for one in numbers if one is not None),
            *(html.table(one, is_words=True) for one in words if one is not None),
            html.heading("Repeat it"),
            html.code(command(run, "DIR")),
        ],
    )
