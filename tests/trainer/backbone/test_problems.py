"""Problems of a run: what is left out, counted or refused, and that resuming draws the same ones."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from latent.errors import GtsError, InputError, MismatchError
from tests.trainer.backbone.small_runs import Failing, exported_weights, run_config
from trainer.backbone.run import BackboneRun


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"data": ("embedded:train=0.5", "drills")}, "weight to every"),
        ({"exclude": ("nowhere.jsonl",)}, "nowhere"),
        ({"data": ("drills",), "redraw_numbers": True, "validation": "held-out"}, "too small"),
        ({"test": "nowhere.jsonl"}, "nowhere"),
    ],
)
def test_unusable_data_is_named_before_the_model_is_built(
    changes: dict[str, Any], named: str
) -> None:
    no_decoder = "missing"  # building it would raise another error
    with pytest.raises(GtsError, match=named):
        BackboneRun(run_config(no_decoder, **changes), Path("unused"))


def test_questions_that_are_too_long_are_left_out_of_a_mixture_and_counted(
    decoder: str, tmp_path: Path
) -> None:
    path = tmp_path / "train.jsonl"
    rows = [
        {"question": "Tom has 30 and 25." + " Why?" * count, "steps": ["30+25=55"], "answer": 55}
        for count in (0, 1, 900)
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    config = run_config(decoder, "cot", data=(str(path),), redraw_numbers=True)
    run = BackboneRun(config, tmp_path / "run")
    run.run()
    assert json.loads((tmp_path / "run" / "result.json").read_text())["too_long"] == 1


def test_the_result_counts_test_questions_in_training_whatever_their_numbers(
    decoder: str, tmp_path: Path
) -> None:
    paths = [tmp_path / "train.jsonl", tmp_path / "test.jsonl"]
    for path, texts in zip(
        paths, (("Tom has 3.", "Ann has 4."), ("Tom has 9.", "Eve has 4.")), strict=True
    ):
        rows = ({"question": text, "steps": ["1+1=2"], "answer": 2} for text in texts)
        path.write_text("\n".join(map(json.dumps, rows)))
    train, test = map(str, paths)
    BackboneRun(run_config(decoder, "cot", data=(train,), test=test), tmp_path / "run").run()
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["test_questions_in_training"] == 1


def test_a_run_is_not_resumed_on_data_that_has_changed(decoder: str, tmp_path: Path) -> None:
    data = tmp_path / "rows.jsonl"
    rows = [
        {"question": f"{n} + 1?", "steps": [f"{n}+1={n + 1}"], "answer": n + 1} for n in range(9)
    ]
    data.write_text("\n".join(map(json.dumps, rows)))
    config = run_config(decoder, "cot", data=(str(data),))
    BackboneRun(config, tmp_path / "run").run()
    data.write_text("\n".join(map(json.dumps, rows[1:])))
    with pytest.raises(MismatchError, match="begun with content of the data"):
        BackboneRun(config, tmp_path / "run").run()


def test_a_killed_run_draws_the_same_numbers_when_it_continues(
    decoder: str, tmp_path: Path
) -> None:
    config = run_config(decoder, "cot", validation_problems=1, test=None)
    config = replace(config, data=("everyday=2", "drills=1"), redraw_numbers=True)
    for out, kills in ((tmp_path / "whole", ()), (tmp_path / "killed", (2, 3))):
        for batch in (*kills, None):
            run = BackboneRun(config, out)
            run.problems.mixture.pool_size = 8  # two batches: the run needs three pools
            if batch is None:
                run.run()
            else:
                run.recipe = Failing(run.recipe, batch)
                with pytest.raises(KeyboardInterrupt):
                    run.run()
    whole, resumed = exported_weights(tmp_path / "whole"), exported_weights(tmp_path / "killed")
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_thoughts_are_measured_on_a_test_without_equations(decoder: str, tmp_path: Path) -> None:
    data = tmp_path / "rows.jsonl"
    data.write_text(json.dumps({"question": "1 + 1?", "answer": 2}))
    run = BackboneRun(run_config(decoder, test=str(data)), tmp_path / "run")
    assert run.problems.test is not None
    with pytest.raises(InputError, match="no equations"):
        BackboneRun(run_config(decoder, "cot", test=str(data)), tmp_path / "run")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"question": "1 + 1?", "answer": 2}, "no equations"),
        ({"question": "1 " * 900, "steps": ["1+1=2"], "answer": 2}, "row 1 has .* tokens"),
    ],
)
def test_data_that_would_fail_a_later_stage_is_refused_at_once(
    decoder: str, tmp_path: Path, row: dict[str, Any], said: str
) -> None:
    data = tmp_path / "rows.jsonl"
    data.write_text(json.dumps(row))
    with pytest.raises(InputError, match=said):
        BackboneRun(run_config(decoder, validation=str(data)), tmp_path / "run")
