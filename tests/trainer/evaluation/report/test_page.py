"""report.html and its figures: complete, self-contained, safe, and the same every time."""

import json
import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path

import pytest

from latent.errors import FormatError, MismatchError, NotFoundError
from tests.trainer.evaluation.evaluations import Simulated, write_run
from trainer.evaluation.report.page import write_report

FIGURES = ("pass-at", "unique-answers", "votes", "snr", "reward-ablation", "calibration")
TWO_LEARNED = Simulated(
    samplers=("deterministic", "dropout:0.1", "gts", "gts:./runs/accuracy-only"),
    budget=32,
    questions=24,
    malformed=((3, "answer is no number: <b>&amp;'abc'"),),
    data='set" onload="alert(1)<script>',
)


class Reader(HTMLParser):
    """Collects tags, ids, addresses and text, and checks that tags are closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.addresses: list[str] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        assert not self._open

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        assert not any(name.startswith("on") for name, _ in attributes)
        self.ids += [value for name, value in attributes if name == "id"]
        named = ("href", "src", "xlink:href")
        self.addresses += [value for name, value in attributes if name in named]
        if tag not in ("meta", "br", "link"):
            self._open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = write_run(tmp_path_factory.mktemp("run") / "a", TWO_LEARNED)
    assert write_report(folder) == folder / "report.html"
    return folder


@pytest.fixture(scope="module")
def page(folder) -> str:
    return (folder / "report.html").read_text()


def test_every_figure_is_there_as_png_and_svg(folder):
    names = {path.name for path in (folder / "figures").iterdir()}
    assert names == {f"{name}.{kind}" for name in FIGURES for kind in ("png", "svg")}
    for path in (folder / "figures").glob("*.png"):
        assert path.read_bytes().startswith(b"\x89PNG")
    for path in (folder / "figures").glob("*.svg"):
        assert ElementTree.parse(path).getroot().tag == "{http://www.w3.org/2000/svg}svg"


def test_the_page_is_well_formed_and_needs_no_network_and_no_script(page):
    read = Reader(page)
    assert all(address.startswith("#") for address in read.addresses)
    assert not {"script", "link", "img", "iframe"} & set(read.tags)
    assert "@import" not in page
    styles = re.sub(r"url\(#", "", page)
    assert "url(" not in styles
    assert read.tags.count("svg") == len(FIGURES)
    assert read.tags.count("figcaption") == len(FIGURES)


def test_ids_are_unique_and_every_reference_has_its_target(page):
    read = Reader(page)
    assert len(read.ids) == len(set(read.ids))
    wanted = {address[1:] for address in read.addresses} | set(re.findall(r"url\(#([^)]+)\)", page))
    assert wanted
    assert wanted <= set(read.ids)


def test_what_comes_from_data_is_escaped(page):
    assert "<script" not in page
    assert "set&#34; onload=&#34;alert(1)&lt;script&gt;" in page
    assert "answer is no number: &lt;b&gt;&amp;amp;&#39;abc&#39;" in page


def test_inlined_figures_take_the_colours_of_the_page(page):
    drawings = "".join(re.findall(r"<svg.*?</svg>", page, re.DOTALL))
    assert "var(--ink)" in drawings
    assert "var(--learned-1)" in drawings
    assert set(re.findall(r"#[0-9a-f]{6}\b", drawings)) <= {"#000000"}
    assert "prefers-color-scheme:dark" in page
    for name in set(re.findall(r"var\(--([a-z0-9-]+)\)", page)):
        assert f"--{name}:" in page


def test_the_tables_say_what_the_summary_says(folder, page):
    summary = json.loads((folder / "summary.json").read_text())
    text = " ".join(Reader(page).texts)
    learned = summary["samplers"]["gts"]
    for measured in (learned["pass_at"]["8"], learned["votes"]["majority"]["32"]):
        low, high = 100 * measured["low"], 100 * measured["high"]
        assert re.search(rf"{100 * measured['value']:.1f}\s+{low:.1f}–{high:.1f}", text)
    assert f"{learned['gain']['value']:.2f}" in text
    assert f"ECE {learned['calibration']['majority']['ece']:.3f}" in text
    assert f"{learned['tokens']:,}" in text
    for title in (
        "Accuracy",
        "pass@N",
        "Sampling quality",
        "Against GTS",
        "Cost",
        "Malformed rows",
    ):
        assert title in text
    assert "--samplers deterministic,dropout:0.1,gts,gts:./runs/accuracy-only --budget 32" in text


def test_the_same_files_give_the_same_bytes(folder, tmp_path):
    again = tmp_path / "elsewhere"
    again.mkdir()
    for name in ("summary.json", "results.jsonl"):
        (again / name).write_bytes((folder / name).read_bytes())
    write_report(again)
    written = [p.relative_to(again) for p in again.rglob("*") if p.is_file()]
    assert len(written) == 3 + 2 * len(FIGURES)
    for path in written:
        assert (again / path).read_bytes() == (folder / path).read_bytes(), path


def test_a_figure_without_data_is_left_out_and_the_page_says_why(tmp_path):
    what = Simulated(samplers=("deterministic",), budget=8, questions=5)
    folder = write_run(tmp_path / "run", what)
    text = write_report(folder).read_text()
    assert text.count("Left out: ") == len(FIGURES)
    assert "Left out: no learned sampler was measured." in text
    assert "Left out: no sampler that draws was measured." in text
    assert not (folder / "figures").exists()


def test_without_results_only_the_violins_are_missing(tmp_path):
    what = Simulated(samplers=("gts",), budget=4, questions=5)
    folder = write_run(tmp_path / "run", what)
    (folder / "results.jsonl").unlink()
    text = write_report(folder).read_text()
    assert "Left out: results.jsonl is not here, or holds no SNR." in text
    assert (folder / "figures" / "pass-at.svg").exists()
    assert not (folder / "figures" / "snr.svg").exists()


def test_a_broken_result_line_is_named(tmp_path):
    folder = write_run(tmp_path / "run", Simulated(budget=2, questions=2))
    with (folder / "results.jsonl").open("a") as file:
        file.write('{"sampler": "gts"')
    with pytest.raises(FormatError, match=r"results.jsonl, line 9 is no result"):
        write_report(folder)


def test_a_folder_without_a_summary_of_this_version_is_refused(tmp_path):
    with pytest.raises(NotFoundError, match="is no folder"):
        write_report(tmp_path / "none")
    with pytest.raises(NotFoundError, match=r"has no summary\.json"):
        write_report(tmp_path)
    path = tmp_path / "summary.json"
    path.write_text('{"version": 7}')
    with pytest.raises(MismatchError, match="version 7"):
        write_report(tmp_path)
    path.write_text("[]")
    with pytest.raises(FormatError, match="no version"):
        write_report(tmp_path)
    path.write_text('{"version": 1}')
    with pytest.raises(FormatError, match=r"summary\.json: config: Field required"):
        write_report(tmp_path)


def test_a_wrong_field_of_a_summary_is_named_in_one_line(tmp_path):
    folder = write_run(tmp_path / "run", Simulated(budget=2, questions=2))
    path = folder / "summary.json"
    summary = json.loads(path.read_text())
    summary["samplers"]["gts"]["pass_at"]["2"]["low"] = "low"
    path.write_text(json.dumps(summary))
    with pytest.raises(FormatError, match=r"samplers\.3\.pass_at\.2\.low: ") as caught:
        write_report(folder)
    assert len(str(caught.value).splitlines()) == 1
