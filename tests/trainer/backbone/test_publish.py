"""Publishing a run: half the bytes, the same reasoner, and a card made of its records."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from latent.errors import InputError, MismatchError, NotFoundError
from latent.files import read_json, write_json
from latent.folders import fingerprint
from latent.reasoner import ProjectionMLP
from latent.store import load_reasoner, save_reasoner
from tests.reasoners import gpt2_config, random_model, reasoner_format, tokenizer
from tests.trainer.backbone.small_runs import exported_weights, run_config
from trainer.backbone.publish import main, ship
from trainer.backbone.run import BackboneRun


def _measured(accuracy: float) -> dict[str, Any]:
    return {"accuracy": accuracy, "by_steps": {"2": accuracy, "3": 0.25}, "problems": 40}


def _run(folder: Path, kind: str, command: str, init: Path | None = None) -> Path:
    config = {
        "architecture": {"family": "gpt2", "layers": 2, "width": 32},
        "data": "embedded:train",
        "train_problems": 50,
        "supervised_steps": 6,
        "init": None if init is None else str(init),
    }
    provenance = {"command": command, "config": config, "steps": 7, "seconds": 120}
    format = replace(reasoner_format(kind), provenance=provenance)
    model = random_model(gpt2_config(), torch.float32)
    projection = None
    if format.projection is not None:
        projection = ProjectionMLP(model.config.hidden_size, format.projection.hidden)
    save_reasoner(folder / "reasoner", format, model, tokenizer(), projection)
    result = {"steps": 7, "seconds": 120, "test": _measured(0.5), "test_zeroed": _measured(0.125)}
    write_json(folder / "result.json", result)
    return folder


@pytest.mark.parametrize("kind", ["coconut", "codi"])
def test_a_shipped_reasoner_has_half_the_bytes_and_can_be_loaded(kind: str, tmp_path: Path) -> None:
    run = _run(tmp_path / "run", kind, "gts train")
    ship(run, tmp_path / "tiny", sampler="gaussian:0.5", vote="confidence")
    weights = [
        sum(path.stat().st_size for path in folder.glob("*.safetensors"))
        for folder in (run / "reasoner", tmp_path / "tiny")
    ]
    assert weights[1] < 0.6 * weights[0]
    reasoner = load_reasoner(tmp_path / "tiny")
    assert reasoner.fingerprint == fingerprint(tmp_path / "tiny")
    assert reasoner.format.kind == kind
    assert (reasoner.format.default_sampler, reasoner.format.vote) == ("gaussian:0.5", "confidence")


def test_the_card_tells_every_run_and_every_measure(tmp_path: Path) -> None:
    first = _run(tmp_path / "text", "cot", "gts train backbone cot")
    second = _run(tmp_path / "run", "coconut", "gts train backbone coconut", first / "reasoner")
    control = tmp_path / "control"
    write_json(control / "result.json", {"test": _measured(0.375)})
    ship(second, tmp_path / "tiny", control)
    card = (tmp_path / "tiny" / "README.md").read_text()
    assert card.index("gts train backbone cot`") < card.index("gts train backbone coconut`")
    assert "| test | 40 | 0.500 | 0.500 | 0.250 |" in card
    assert "every thought set to zero | 40 | 0.125" in card
    assert "no thoughts | 40 | 0.375" in card
    provenance = read_json(tmp_path / "tiny" / "reasoner.json")["provenance"]
    assert provenance["runs"][0]["command"] == "gts train backbone cot"
    assert provenance["results"]["test"]["accuracy"] == 0.5
    assert provenance["results"]["control"]["accuracy"] == 0.375


def test_a_published_reasoner_that_is_trained_further_keeps_its_runs(tmp_path: Path) -> None:
    ship(_run(tmp_path / "run", "coconut", "gts train first"), tmp_path / "tiny")
    ship(_run(tmp_path / "more", "coconut", "gts train more", tmp_path / "tiny"), tmp_path / "tiny")
    runs = read_json(tmp_path / "tiny" / "reasoner.json")["provenance"]["runs"]
    assert [run["command"] for run in runs] == ["gts train first", "gts train more"]


def test_the_mean_of_two_adapters_can_be_shipped(decoder: str, tmp_path: Path) -> None:
    config = run_config(decoder, "cot", init=f"{decoder}/gpt2", test=None, bare_steps=True)
    config = replace(config, lora_rank=2, optimizer="adamw", learning_rate=0.02)
    BackboneRun(config, tmp_path / "first").run()
    more = replace(config, init=str(tmp_path / "first" / "reasoner"), seed=1)
    BackboneRun(more, tmp_path / "more").run()
    before, after = (exported_weights(tmp_path / name) for name in ("first", "more"))
    ship(tmp_path / "more", tmp_path / "mean", average=tmp_path / "first" / "reasoner")
    mean = load_file(tmp_path / "mean" / "adapter_model.safetensors")
    assert mean.keys() == before.keys()
    for name, tensor in mean.items():
        expected = (before[name] + after[name]).half() / 2
        torch.testing.assert_close(tensor, expected, rtol=0, atol=1e-3)
    assert load_reasoner(tmp_path / "mean").fingerprint == fingerprint(tmp_path / "mean")

    BackboneRun(replace(config, lora_rank=3, stage_steps=(1,)), tmp_path / "wide").run()
    with pytest.raises(MismatchError, match="differ in shape"):
        ship(tmp_path / "more", tmp_path / "none", average=tmp_path / "wide" / "reasoner")
    other = replace(config, init=f"{decoder}/llama", stage_steps=(1,))
    BackboneRun(other, tmp_path / "other").run()
    with pytest.raises(MismatchError, match="differ in base"):
        ship(tmp_path / "more", tmp_path / "none", average=tmp_path / "other" / "reasoner")
    longer = shutil.copytree(tmp_path / "first" / "reasoner", tmp_path / "longer")
    described = read_json(longer / "reasoner.json")
    described["max_reasoning_tokens"] += 1
    write_json(longer / "reasoner.json", described)
    with pytest.raises(MismatchError, match="differ in max_reasoning_tokens"):
        ship(tmp_path / "more", tmp_path / "none", average=longer)
    described["max_reasoning_tokens"] -= 1
    described["calculator"] = True  # which the run's own file leaves out
    write_json(longer / "reasoner.json", described)
    with pytest.raises(MismatchError, match="differ in calculator"):
        ship(tmp_path / "more", tmp_path / "none", average=longer)
    with pytest.raises(InputError, match="has no adapter"):
        ship(_run(tmp_path / "run", "cot", "gts train"), tmp_path / "none", average=tmp_path)
    assert not (tmp_path / "none").exists()


def test_the_mean_of_two_adapters_has_the_mean_of_their_projections(
    decoder: str, tmp_path: Path
) -> None:
    config = run_config(decoder, "codi", lora_rank=2, optimizer="adamw", learning_rate=0.02)
    BackboneRun(replace(config, test=None), tmp_path / "first").run()
    own = replace(config, test=None, init=str(tmp_path / "first" / "reasoner"), seed=1)
    BackboneRun(own, tmp_path / "more").run()
    first, more = (tmp_path / name / "reasoner" for name in ("first", "more"))
    ship(tmp_path / "more", tmp_path / "mean", average=first)
    before, after, mean = (
        load_file(folder / "projection.safetensors") for folder in (first, more, tmp_path / "mean")
    )
    for name, tensor in mean.items():
        expected = (before[name] + after[name]).half() / 2
        torch.testing.assert_close(tensor, expected, rtol=0, atol=1e-3)
    assert any((before[name] - mean[name].float()).abs().max() > 1e-3 for name in mean)
    assert load_reasoner(tmp_path / "mean").fingerprint == fingerprint(tmp_path / "mean")

    wide = replace(config, test=None, projection_hidden=12)
    BackboneRun(wide, tmp_path / "wide").run()
    with pytest.raises(MismatchError, match="differ in projection"):
        ship(tmp_path / "more", tmp_path / "none", average=tmp_path / "wide" / "reasoner")


def test_an_unfinished_run_is_not_shipped(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"result\.json is missing"):
        ship(tmp_path, tmp_path / "tiny")


def test_the_command_ends_with_one_line_on_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["publish", str(tmp_path), str(tmp_path / "tiny")])
    with pytest.raises(SystemExit, match=r"^error: .*result\.json is missing") as ended:
        main()
    assert "\n" not in str(ended.value)
