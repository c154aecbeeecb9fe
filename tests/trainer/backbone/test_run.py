"""Backbone runs: they resume bit for bit, refuse damaged files, and export valid reasoners."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from latent.errors import FormatError, InputError, MismatchError, NotFoundError
from latent.format import ReasonerFormat
from latent.store import load_reasoner
from tests.trainer.backbone.small_runs import Failing, exported_weights, run_config
from trainer.backbone.run import BackboneRun
from trainer.runs.checkpoint import read_log
from trainer.runs.divergence import DivergedError


@pytest.mark.parametrize("supervised_steps", [0, 2])
@pytest.mark.parametrize("recipe", ["coconut", "codi"])
def test_a_killed_run_continues_to_the_uninterrupted_result_bit_for_bit(
    recipe: str, supervised_steps: int, decoder: str, tmp_path: Path
) -> None:
    few = {"validation_problems": 1, "test": None}  # measuring takes most of the time
    config = run_config(decoder, recipe, supervised_steps=supervised_steps, **few)
    BackboneRun(config, tmp_path / "whole").run()
    whole = exported_weights(tmp_path / "whole")
    out = tmp_path / "killed"
    # Before any checkpoint; from the start, at the end of a stage; from there, inside the last one.
    for batch in (2, 4, 5):
        run = BackboneRun(config, out)
        run.recipe = Failing(run.recipe, batch)
        with pytest.raises(KeyboardInterrupt):
            run.run()
    BackboneRun(config, out).run()
    resumed = exported_weights(out)
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    logs = [read_log(folder / "log.jsonl") for folder in (tmp_path / "whole", out)]
    assert [(r["step"], r.get("loss")) for r in logs[0]] == [
        (r["step"], r.get("loss")) for r in logs[1]
    ]


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_an_adapter_is_trained_resumed_and_exported_without_the_weights_of_its_base(
    family: str, decoder: str, tmp_path: Path
) -> None:
    config = run_config(decoder, "cot", init=f"{decoder}/{family}", test=None, bare_steps=True)
    config = replace(config, lora_rank=2, optimizer="adamw", learning_rate=0.02)
    BackboneRun(config, tmp_path / "whole").run()
    run = BackboneRun(config, tmp_path / "killed")
    run.recipe = Failing(run.recipe, 5)
    with pytest.raises(KeyboardInterrupt):
        run.run()
    run = BackboneRun(config, tmp_path / "killed")
    run.run()
    whole, resumed = exported_weights(tmp_path / "whole"), exported_weights(tmp_path / "killed")
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    assert {name.split(".")[-2] for name in whole} == {"lora_A", "lora_B"}
    assert any(tensor.any() for name, tensor in whole.items() if "lora_B" in name)
    (checkpoint,) = (tmp_path / "killed" / "checkpoint").glob("step-*.safetensors")
    saved = [name for name in load_file(checkpoint) if name.startswith("modules/")]
    assert saved
    assert all("lora_" in name for name in saved)  # nothing of the base
    # What is served computes what was trained.
    served = load_reasoner(tmp_path / "killed" / "reasoner")
    ids = torch.arange(3, 20)[None]
    run.model.set_attn_implementation("eager")
    served._model.set_attn_implementation("eager")
    with torch.no_grad():
        torch.testing.assert_close(
            served._model(ids).logits, run.model.eval()(ids).logits, rtol=0, atol=1e-4
        )
    # A second run goes on from the adapter, and refuses another rank.
    again = replace(config, init=str(tmp_path / "killed" / "reasoner"), stage_steps=(1,))
    more = BackboneRun(again, tmp_path / "more")
    more_ids = more.model.eval()(ids).logits
    torch.testing.assert_close(more_ids, run.model(ids).logits, rtol=0, atol=1e-4)
    with pytest.raises(MismatchError, match="give its own --lora-rank"):
        BackboneRun(replace(again, lora_rank=3), tmp_path / "other")


def test_an_adapter_needs_a_decoder_that_has_the_markers_of_thoughts(
    decoder: str, tmp_path: Path
) -> None:
    folder = tmp_path / "plain"
    tokenizer = AutoTokenizer.from_pretrained(f"{decoder}/llama")
    data = json.loads(tokenizer.backend_tokenizer.to_str())
    data["added_tokens"] = [t for t in data["added_tokens"] if "latent" not in t["content"]]
    for name in ("<|start-latent|>", "<|end-latent|>"):
        data["model"]["vocab"].pop(name)
    tokenizer.save_pretrained(folder)
    (folder / "tokenizer.json").write_text(json.dumps(data))
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings = {key: value for key, value in settings.items() if "latent" not in str(value)}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    model = AutoModelForCausalLM.from_pretrained(f"{decoder}/llama")
    model.resize_token_embeddings(318)
    model.save_pretrained(folder)
    config = run_config(decoder, "codi", init=str(folder), lora_rank=2, optimizer="adamw")
    with pytest.raises(InputError, match="no tokens for the markers of thoughts"):
        BackboneRun(config, tmp_path / "run")


def test_bfloat16_products_train_an_adapter_that_is_stored_in_full(
    decoder: str, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"init": f"{decoder}/llama", "lora_rank": 2, "optimizer": "adamw"}
    losses = {}
    for precision in ("fp32", "bf16"):
        config = run_config(decoder, "cot", precision=precision, **settings)
        run = BackboneRun(config, tmp_path / precision)
        run.run()
        log = (tmp_path / precision / "log.jsonl").read_text().splitlines()
        losses[precision] = [json.loads(line)["loss"] for line in log if "loss" in line]
        factors = load_file(tmp_path / precision / "reasoner" / "adapter_model.safetensors")
        assert {factor.dtype for factor in factors.values()} == {torch.float32}
    assert losses["bf16"] == pytest.approx(losses["fp32"], rel=0.05)
    assert losses["bf16"] != losses["fp32"]


def test_a_finished_run_can_be_run_again_and_changes_nothing(decoder: str, tmp_path: Path) -> None:
    config = run_config(decoder, "cot")
    first = BackboneRun(config, tmp_path).run()
    weights = (tmp_path / "reasoner" / "model.safetensors").read_bytes()
    assert BackboneRun(config, tmp_path).run() == first
    assert (tmp_path / "reasoner" / "model.safetensors").read_bytes() == weights


@pytest.mark.parametrize(("recipe", "thoughts"), [("coconut", 2), ("codi", 2), ("cot", 0)])
def test_the_exported_folder_has_the_fields_of_the_format(
    recipe: str, thoughts: int, decoder: str, tmp_path: Path
) -> None:
    run = BackboneRun(run_config(decoder, recipe), tmp_path)
    run.run()
    folder = tmp_path / "reasoner"
    card = json.loads((folder / "reasoner.json").read_text())
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert load_reasoner(folder).format == ReasonerFormat.from_json(card)
    assert (card["format"], card["kind"], card["thoughts"]) == (1, recipe, thoughts)
    is_codi, is_text = recipe == "codi", recipe == "cot"
    assert card["prompt"] == {
        "prefix_ids": [],
        "strip": True,
        "collapse_spaces": is_codi,
        "suffix": "" if is_codi else "\n",
    }
    assert card["start_id"] == (
        None if is_text else tokenizer.convert_tokens_to_ids("<|start-latent|>")
    )
    assert card["end_id"] == (
        None if is_text else tokenizer.convert_tokens_to_ids("<|end-latent|>")
    )
    prefix = tokenizer.decode(card["answer_prefix_ids"])
    assert prefix == ("The answer is: " if is_codi else "### ")
    assert (card["max_reasoning_tokens"] > 0) == is_text
    assert card["projection"] == ({"hidden": 8, "layer_norm_eps": 1e-5} if is_codi else None)
    assert (folder / "projection.safetensors").exists() == is_codi
    assert card["provenance"]["validation"]["problems"] == 4
    loaded = AutoModelForCausalLM.from_pretrained(folder).state_dict()
    assert all(torch.equal(loaded[name], value) for name, value in run.model.state_dict().items())
    assert all((tmp_path / f"curves.{kind}").stat().st_size > 0 for kind in ("png", "svg"))


def test_the_control_has_the_same_steps_no_thoughts_and_both_markers(
    decoder: str, tmp_path: Path
) -> None:
    run = BackboneRun(run_config(decoder, with_thoughts=False), tmp_path)
    assert [stage.steps for stage in run.recipe.stages] == [3, 6, 2]
    run.run()
    card = json.loads((tmp_path / "reasoner" / "reasoner.json").read_text())
    assert (card["kind"], card["thoughts"]) == ("coconut", 0)
    assert card["start_id"] != card["end_id"]
    assert "test_zeroed" not in json.loads((tmp_path / "result.json").read_text())


def test_the_result_has_the_accuracy_with_altered_thoughts(decoder: str, tmp_path: Path) -> None:
    BackboneRun(run_config(decoder), tmp_path).run()
    result = json.loads((tmp_path / "result.json").read_text())
    assert {"validation", "test", "test_zeroed", "test_swapped"} <= set(result)
    assert (tmp_path / "text-reasoner" / "reasoner.json").exists()


@pytest.mark.parametrize("failure", ["loss", "gradient"])
def test_a_loss_or_gradient_that_is_not_finite_stops_the_run_and_overwrites_nothing(
    failure: str, decoder: str, tmp_path: Path
) -> None:
    run = BackboneRun(run_config(decoder, checkpoint_every=1), tmp_path)
    run.recipe = Failing(run.recipe, 4, failure)
    with pytest.raises(DivergedError, match=r"diverged at step 3 .*; the last checkpoint stands"):
        run.run()
    assert all(torch.isfinite(parameter).all() for parameter in run.model.parameters())
    assert json.loads((tmp_path / "checkpoint" / "backbone.json").read_text())["step"] == 3
    tensors = load_file(tmp_path / "checkpoint" / "step-0000003.safetensors")
    assert all(torch.isfinite(tensor).all() for tensor in tensors.values())


def test_an_outdated_or_damaged_checkpoint_is_refused_and_kept(
    decoder: str, tmp_path: Path
) -> None:
    old = tmp_path / "checkpoint.pt"
    old.write_bytes(b"PK")
    with pytest.raises(FormatError, match="earlier version"):
        BackboneRun(run_config(decoder), tmp_path).run()
    assert old.read_bytes() == b"PK"
    old.unlink()
    index = tmp_path / "checkpoint" / "backbone.json"
    index.parent.mkdir()
    for text, said in (('{"step": 1', "not readable JSON"), ('{"step": 1}', "not a checkpoint")):
        index.write_text(text)
        with pytest.raises(FormatError, match=said):
            BackboneRun(run_config(decoder), tmp_path).run()
        assert index.read_text() == text


def test_a_checkpoint_of_another_run_is_refused_by_the_option_that_differs(
    decoder: str, tmp_path: Path
) -> None:
    BackboneRun(run_config(decoder, "cot"), tmp_path).run()
    with pytest.raises(MismatchError, match="begun with batch = 4, not 5"):
        BackboneRun(run_config(decoder, "cot", batch=5), tmp_path).run()


def test_a_plan_fitted_to_a_time_is_decided_once(decoder: str, tmp_path: Path) -> None:
    run = BackboneRun(run_config(decoder), tmp_path)
    fresh = {name: value.clone() for name, value in run.model.state_dict().items()}
    run.fit_to(0.01)
    assert all(torch.equal(fresh[name], value) for name, value in run.model.state_dict().items())
    again = BackboneRun(run_config(decoder), tmp_path)
    again.fit_to(0.01)
    assert again.config == run.config
    again.run()
    with pytest.raises(MismatchError, match=r"--minutes 0\.01"):
        BackboneRun(run_config(decoder), tmp_path).fit_to(0.02)
    BackboneRun(run_config(decoder), tmp_path).fit_to(0.01)


def test_an_init_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"config\.json"):
        BackboneRun(run_config("", init=str(tmp_path)), tmp_path)
