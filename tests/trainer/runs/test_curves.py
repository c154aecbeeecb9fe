"""Pictures of a training: what is drawn, from a log worked by hand."""

import json
from pathlib import Path

import pytest

from trainer.backbone.publish import draw_training
from trainer.runs.curves import CurvePanel, curve, draw_curves


def test_a_backbones_curves_name_axes_losses_and_stages_in_words(tmp_path: Path) -> None:
    records = [
        {"step": 10, "stage": "teacher", "loss": 2.0, "teacher": 2.0},
        {"step": 20, "stage": "teacher", "accuracy": 0.25},
        {"step": 30, "stage": "thoughts", "loss": 0.5, "teacher": 0.2, "student": 0.3},
        {"step": 40, "stage": "thoughts", "accuracy": 0.75},
    ]
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps(record) + "\n" for record in records))
    png, svg = draw_training(log, tmp_path)
    assert png.read_bytes().startswith(b"\x89PNG")
    text = svg.read_text()
    for words in ("training step", "training loss", "all parts", "(student)", "right, %"):
        assert words in text
    assert "(distance)" not in text  # the log has none
    assert "mathdefault" not in text


def test_a_curve_is_at_the_steps_that_have_its_measure(tmp_path: Path) -> None:
    records = [{"step": 1, "loss": 3.0}, {"step": 2}, {"step": 3, "loss": 1.0}]
    one = curve(records, "loss", "all")
    assert (one.steps, one.values) == ([1, 3], [3.0, 1.0])
    panels = [CurvePanel("a", [one, one], is_ordered=True), CurvePanel("nothing", [])]
    written = draw_curves(tmp_path / "new", "any", panels)
    assert [path.name for path in written] == ["any.png", "any.svg"]
    first = written[1].read_bytes()
    assert draw_curves(tmp_path / "new", "any", panels)[1].read_bytes() == first


@pytest.mark.parametrize(("is_share", "shown"), [(True, ">100<"), (False, ">0.7<")])
def test_a_share_is_drawn_as_per_cent(tmp_path: Path, is_share: bool, shown: str) -> None:
    one = curve([{"step": 1, "share": 0.25}, {"step": 2, "share": 0.75}], "share", "all")
    svg = draw_curves(tmp_path, "share", [CurvePanel("share", [one], is_share=is_share)])[1]
    assert shown in svg.read_text()
