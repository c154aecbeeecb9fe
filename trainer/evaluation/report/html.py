"""Lays out pages: every word that comes from data is escaped here, and only here."""

from collections.abc import Iterable
from html import escape

from trainer.evaluation.report.cells import Cell, Table
from trainer.evaluation.report.drawing import Absent, Drawing
from trainer.evaluation.report.style import theme_css

__all__ = ["code", "figure", "heading", "page", "paragraph", "table", "tiles"]

_CSS = """
*{box-sizing:border-box}
:root{color-scheme:light dark;--back:#ffffff;--card:#f6f7f9;--line:#dfe3e8;--soft:#59616b;
--strong:#9a3d00}
@media (prefers-color-scheme:dark){:root{--back:#14171b;--card:#1c2026;--line:#343a42;
--soft:#a4adb8;--strong:#ff9557}}
body{margin:0 auto;max-width:64rem;padding:2.5rem 1.25rem 4rem;background:var(--back);
color:var(--ink);font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
h1{font-size:1.6rem;line-height:1.25;margin:0 0 .25rem;overflow-wrap:anywhere}
h2{font-size:1.15rem;margin:2.75rem 0 .5rem}
p{margin:.5rem 0;max-width:46rem}
.soft,figcaption,.note{color:var(--soft);font-size:.9rem}
.lead{font-size:1.15rem;line-height:1.5;margin:1rem 0 1.5rem}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(11rem,1fr));gap:.75rem;margin:0}
.tiles div{background:var(--card);border:1px solid var(--line);border-radius:.5rem;padding:.75rem 1rem}
.tiles dt{color:var(--soft);font-size:.85rem;overflow-wrap:anywhere}
.tiles dd{margin:0;font-size:1.6rem;font-weight:650;font-variant-numeric:tabular-nums}
.tiles dd small{display:block;font-size:.8rem;font-weight:400;color:var(--soft)}
figure{margin:0}
figure svg{display:block;width:100%;height:auto}
figure svg text{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif!important}
figcaption{max-width:46rem;margin-top:.25rem}
.scroll{overflow-x:auto;margin:.5rem 0}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.9rem}
th,td{padding:.35rem .6rem;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}
tbody th,thead th:first-child{text-align:left;padding-left:0;font-weight:500}
thead th,thead th:first-child{color:var(--soft);font-weight:600;vertical-align:bottom}
tbody tr:hover{background:var(--card)}
.words td{text-align:left;white-space:normal;overflow-wrap:anywhere}
.words thead th{text-align:left}
td small{display:block;color:var(--soft);font-size:.78rem;font-weight:400}
td.strong{font-weight:700;color:var(--strong)}
pre{background:var(--card);border:1px solid var(--line);border-radius:.5rem;padding:.75rem 1rem;
overflow-x:auto;font-size:.85rem;white-space:pre-wrap;overflow-wrap:anywhere}
@media print{body{max-width:none;padding:0}figure,table{break-inside:avoid}}
"""


def page(title: str, body: Iterable[str]) -> str:
    """Put a body into one self-contained page."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{theme_css()}{_CSS}</style>\n</head>\n<body>\n"
        f"<main>\n{''.join(part + chr(10) for part in body)}</main>\n</body>\n</html>\n"
    )


def heading(text: str, level: int = 2) -> str:
    """Write a heading."""
    return f"<h{level}>{escape(text)}</h{level}>"


def paragraph(text: str, kind: str = "") -> str:
    """Write a paragraph, of a class of the style sheet."""
    return f'<p class="{kind}">{escape(text)}</p>' if kind else f"<p>{escape(text)}</p>"


def code(text: str) -> str:
    """Write a command."""
    return f"<pre><code>{escape(text)}</code></pre>"


def tiles(values: Iterable[tuple[str, Cell]]) -> str:
    """Write a few key numbers large."""
    written = (
        f"<div><dt>{escape(name)}</dt><dd>{escape(cell.text)}"
        f"<small>{escape(cell.detail)}</small></dd></div>"
        for name, cell in values
    )
    return f'<dl class="tiles">{"".join(written)}</dl>'


def figure(drawn: Drawing | Absent) -> str:
    """Write a figure with its caption, or say why it is not there."""
    if isinstance(drawn, Absent):
        return heading(drawn.title) + paragraph(f"Left out: {drawn.reason}.", "soft")
    svg = drawn.picture.inline_svg.replace(
        "<svg ", f'<svg role="img" aria-label="{escape(drawn.alt)}" ', 1
    )
    return (
        f"{heading(drawn.title)}\n<figure>\n{svg}\n"
        f"<figcaption>{escape(drawn.caption)}</figcaption>\n</figure>"
    )


def table(shown: Table, *, is_words: bool = False) -> str:
    """Write a table with row and column headers; numbers to the right, words to the left."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in shown.head)
    rows = "\n".join(
        f'<tr><th scope="row">{escape(first.text)}</th>{"".join(_cell(cell) for cell in rest)}</tr>'
        for first, *rest in shown.rows
    )
    note = paragraph(shown.note, "note") if shown.note else ""
    kind = ' class="words"' if is_words else ""
    return (
        f'{heading(shown.title)}{note}\n<div class="scroll" tabindex="0">\n<table{kind} '
        f'aria-label="{escape(shown.title)}">\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody>\n</table>\n</div>"
    )


def _cell(cell: Cell) -> str:
    kind = ' class="strong"' if cell.is_strong else ""
    detail = f"<small>{escape(cell.detail)}</small>" if cell.detail else ""
    return f"<td{kind}>{escape(cell.text)}{detail}</td>"
