"""Tables, headline and the paper's numbers, from small runs worked by hand."""

import json
from pathlib import Path

import pytest

from latent.errors import UnsupportedError
from tests.trainer.evaluation.evaluations import Simulated, simulate, summarise
from trainer.evaluation.report.figures import draw_figures
from trainer.evaluation.report.page import headline, key_numbers
from trainer.evaluation.report.paper import paper_rows
from trainer.evaluation.report.plotting import legend, series_styles, shorten
from trainer.evaluation.report.tables import (
    Cell,
    command,
    decimal,
    paired_table,
    pass_at_table,
    percent,
    points,
    quality_table,
    seed_table,
)
from trainer.evaluation.statistics import Interval
from trainer.evaluation.summary import ModelCard, Paired, Seeds, Summary, read_summary
from trainer.runs.pictures import render

SMALL = Simulated(budget=8, questions=10)


def read(tmp_path: Path, what: Simulated = SMALL, **config: object) -> Summary:
    summary = summarise(what, simulate(what))
    summary["config"].update(config)
    path = tmp_path / "summary.json"
    path.write_text(json.dumps(summary))
    return read_summary(path)


def changed(model: ModelCard, **changes: object) -> ModelCard:
    return model.model_copy(update=changes)


def with_difference(run: Summary, low: float, value: float, high: float) -> Summary:
    numbers = {"measure": "pass@8", "difference": value, "low": low, "high": high}
    pairs = (
        Paired(sampler=spec, against="gts", **numbers) for spec in ("gaussian:1.0", "dropout:0.1")
    )
    return run.model_copy(update={"paired": tuple(pairs)})


def test_numbers_are_shown_with_their_intervals():
    assert percent(Interval(0.612, 0.6, 0.625)) == Cell("61.2", "60.0–62.5")
    assert decimal(Interval(-0.874, -1.0, -0.001)) == Cell("−0.87", "−1.00 to 0.00")
    assert percent(None) == Cell("–")


def test_a_difference_stands_out_only_when_its_interval_is_clear_of_zero():
    clear = points(Interval(0.021, 0.005, 0.037), is_share=True)
    assert clear == Cell("+2.1", "+0.5 to +3.7", is_strong=True)
    assert not points(Interval(0.02, -0.001, 0.04), is_share=True).is_strong
    assert not points(Interval(0.02, 0.0, 0.04), is_share=True).is_strong
    assert points(Interval(-0.5, -0.7, -0.3), is_share=False).is_strong


def test_the_paired_table_gives_a_verdict_in_words(tmp_path):
    run = read(tmp_path)
    for low, value, high, verdict in (
        (0.01, 0.02, 0.03, "higher"),
        (-0.03, -0.02, -0.01, "lower"),
        (-0.01, 0.01, 0.03, "not clear"),
    ):
        table = paired_table(with_difference(run, low, value, high))
        assert table is not None
        assert [row[0].text for row in table.rows] == ["gts − gaussian:1.0", "gts − dropout:0.1"]
        assert {row[3].text for row in table.rows} == {verdict}


def test_the_headline_says_what_came_out_whichever_way(tmp_path):
    run = read(tmp_path)
    assert "points higher than that of" in headline(with_difference(run, 0.01, 0.02, 0.03))
    assert "2.0 points lower than that of" in headline(with_difference(run, -0.03, -0.02, -0.01))
    unclear = headline(with_difference(run, -0.01, 0.01, 0.03))
    assert "is not clearly different" in unclear
    assert "95% interval −1.0 to +3.0 points" in unclear
    accuracy = run.accuracy.value
    assert f"answers {accuracy * 100:.1f}% of 10 questions right" in unclear
    assert [name for name, _ in key_numbers(run)][1:3] == [
        "pass@8 of gts, %",
        "majority@8 of gts, %",
    ]


def test_one_sample_is_called_mean_at_1(tmp_path):
    assert pass_at_table(read(tmp_path)).head == ("sampler", "mean@1", "pass@2", "pass@4", "pass@8")


def test_the_papers_numbers_stand_only_beside_its_own_backbones(tmp_path):
    specs = ("dropout:0.5", "dropout:0.3", "gaussian:1.0", "gts", "gts:other")
    model = read(tmp_path).model
    gpt2 = changed(model, kind="coconut", width=768, parameters=124_442_112)
    found = paper_rows(gpt2, specs, 32)
    assert {spec: row.gain for spec, row in found.items()} == {
        "dropout:0.5": -0.87,
        "gaussian:1.0": 0.34,
        "gts": 1.84,
    }
    llama = changed(model, kind="codi", width=2048, parameters=1_240_000_000)
    assert paper_rows(llama, specs, 32)["gts"].gain == 1.15
    for other in (
        model,
        changed(gpt2, kind="codi"),
        changed(gpt2, thoughts=10),
        changed(gpt2, parameters=355_000_000),
    ):
        assert paper_rows(other, specs, 32) == {}
    assert paper_rows(gpt2, specs, 8) == {}


def test_the_quality_table_has_the_papers_columns_only_then(tmp_path):
    ours = quality_table(read(tmp_path))
    assert ours.head == ("sampler", "SG", "SG > 0.5", "JS", "regime")
    what = SMALL.changed(budget=32, width=768, parameters=124_442_112, data="gsm8k")
    beside = quality_table(read(tmp_path, what))
    assert beside.head[5:] == ("paper SG", "paper SG > 0.5", "paper JS")
    assert [cell.text for cell in beside.rows[0][5:]] == ["1.09", "0.61", "0.05"]
    assert "this run is on gsm8k" in beside.note


def test_the_command_repeats_the_run_and_is_safe_to_paste(tmp_path):
    run = read(tmp_path, model="my model", data="a;b.jsonl", limit=None, seed=7)
    assert command(run, "DIR") == (
        "gts evaluate --model 'my model' --data 'a;b.jsonl' "
        "--samplers deterministic,dropout:0.1,gaussian:1.0,gts --budget 8 --seed 7 --out DIR"
    )


def test_no_two_series_have_the_same_style():
    names = [f"dropout:0.{n}" for n in range(1, 9)] + ["gts", "gts:b", "gts:c", "gts:d"]
    chosen = series_styles(names, ["gts", "gts:b", "gts:c", "gts:d"])
    assert len(set(chosen.values())) == len(names)


def test_labels_are_short_and_printable():
    assert shorten("gts") == "gts"
    assert shorten("gts:./a\x07b") == "gts:./a?b"
    assert shorten("gts:./" + "x" * 80 + "/end").endswith("xx/end")
    assert len(shorten("y" * 100)) == 34


def test_names_that_matplotlib_would_interpret_are_drawn_as_they_are():
    names = ["$x^2$", "_hidden", "<b>", "日本"]

    def draw(figure, panels):
        legend(figure, series_styles(names, []))

    svg = render("odd", (6, 3), (1, 1), draw).svg
    for shown in ("$x^2$", "_hidden", "&lt;b&gt;", "日本"):
        assert shown in svg


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(UnsupportedError, match=r"pip install 'gts\[train\]'"):
        render("any", (1, 1), (1, 1), lambda figure, panels: None)


def with_seeds(run: Summary) -> Summary:
    numbers = {"measure": "pass@8", "difference": 0.05, "low": 0.01, "high": 0.09}
    pair = Paired(sampler="gaussian:1.0", against="gts", **numbers)
    measures = {"pass@8": Interval(0.7, 0.6, 0.8), "gain": Interval(1.5, 1.0, 2.0)}
    seeds = Seeds(samplers=("gts", "gts:seed-1"), measures=measures, paired=(pair,))
    return run.model_copy(update={"seeds": (seeds,)})


def test_seeds_have_a_table_of_their_mean_and_its_differences(tmp_path):
    run = read(tmp_path, SMALL.changed(samplers=("gaussian:1.0", "gts", "gts:seed-1")))
    assert run.seeds == ()
    table = seed_table(with_seeds(run).seeds[0])
    assert table.title == "gts over 2 seeds"
    assert "gts, gts:seed-1" in table.note
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["mean", "70.0", "1.50"],
        ["− gaussian:1.0", "+5.0", "–"],
    ]
    assert table.rows[1][1].is_strong


def test_figures_and_pairs_leave_further_seeds_out_and_tables_keep_them(tmp_path):
    run = with_seeds(read(tmp_path, SMALL.changed(samplers=("gaussian:1.0", "gts", "gts:seed-1"))))
    assert [row[0].text for row in pass_at_table(run).rows] == ["gaussian:1.0", "gts", "gts:seed-1"]
    pairs = paired_table(run)
    assert pairs is not None
    assert {row[0].text for row in pairs.rows} == {"gts − gaussian:1.0"}
    assert "seed-1" not in str(draw_figures(run, {})[0])
