"""Backbone runs: they resume bit for bit, refuse damaged files, and export valid reasoners."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from latent.errors import FormatError, GtsError, InputError, MismatchError, NotFoundError
from latent.format import ReasonerFormat
from latent.store import load_reasoner
from trainer.backbone.config import Architecture, BackboneConfig, fit_plan, learning_rate
from trainer.backbone.curriculum import Curriculum, Stage
from trainer.backbone.model import build_decoder
from trainer.backbone.optimizer import orthogonalise
from trainer.backbone.run import BackboneRun
from trainer.data.corpus import Batch, Example
from trainer.data.sources import embedded_rows
from trainer.data.tokenizer import train_tokenizer
from trainer.runs.checkpoint import read_log
from trainer.runs.divergence import DivergedError


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("decoder")
    rows = embedded_rows("train", 200)
    tokenizer = train_tokenizer((f"{r.question}\n### {r.answer}<<{r.steps}>>" for r in rows), 320)
    torch.manual_seed(0)
    for family in ("gpt2", "llama"):
        shape = Architecture(family, width=16, layers=2, heads=2, kv_heads=1, mlp_width=24)
        build_decoder(shape, len(tokenizer), 0).save_pretrained(folder / family)
        tokenizer.save_pretrained(folder / family)
    return str(folder)


def _config(decoder: str, recipe: str = "coconut", **changes: Any) -> BackboneConfig:
    base = BackboneConfig(
        recipe=recipe,
        stage_steps={"coconut": (3, 3, 3), "codi": (3, 2, 3), "cot": (6,)}[recipe],
        init=f"{decoder}/{'llama' if recipe == 'codi' else 'gpt2'}",
        train_problems=60,
        validation_problems=4,
        test_problems=4,
        settle_steps=2,
        codi_thoughts=2,
        projection_hidden=8,
        batch=4,
        log_every=2,
        examine_every=4,
        checkpoint_every=2,
    )
    return replace(base, **changes)


@dataclass(frozen=True)
class Failing:
    """A recipe whose n-th batch fails: the process is killed, or loss or gradient are not finite."""

    recipe: Curriculum
    limit: int
    failure: str = "kill"
    calls: list[int] = field(default_factory=list)

    @property
    def stages(self) -> tuple[Stage, ...]:
        return self.recipe.stages

    def loss(
        self,
        model: PreTrainedModel,
        projection: nn.Module | None,
        stage: int,
        examples: Sequence[Example],
        rng: np.random.Generator,
    ) -> dict[str, Tensor]:
        self.calls.append(stage)
        losses = self.recipe.loss(model, projection, stage, examples, rng)
        if len(self.calls) == self.limit:
            if self.failure == "kill":
                raise KeyboardInterrupt
            # √0 is finite and its derivative is not.
            zero = next(model.parameters()).sum() * 0.0
            bad = {"loss": zero * torch.nan, "gradient": zero.sqrt()}[self.failure]
            losses["loss"] = losses["loss"] + bad
        return losses

    def examination(self, stage: int, examples: Sequence[Example]) -> Batch:
        return self.recipe.examination(stage, examples)

    def exact_forced(
        self, model: PreTrainedModel, batch: Batch, examples: Sequence[Example]
    ) -> Tensor:
        return self.recipe.exact_forced(model, batch, examples)


def _weights(out: Path) -> dict[str, Tensor]:
    whole, adapter = (out / "reasoner" / f"{name}model.safetensors" for name in ("", "adapter_"))
    tensors = load_file(whole if whole.exists() else adapter)
    extra = out / "reasoner" / "projection.safetensors"
    return {**tensors, **(load_file(extra) if extra.exists() else {})}


@pytest.mark.parametrize("supervised_steps", [0, 2])
@pytest.mark.parametrize("recipe", ["coconut", "codi"])
def test_a_killed_run_continues_to_the_uninterrupted_result_bit_for_bit(
    recipe: str, supervised_steps: int, decoder: str, tmp_path: Path
) -> None:
    few = {"validation_problems": 1, "test": None}  # measuring takes most of the time
    config = _config(decoder, recipe, supervised_steps=supervised_steps, **few)
    BackboneRun(config, tmp_path / "whole").run()
    whole = _weights(tmp_path / "whole")
    out = tmp_path / "killed"
    # Before any checkpoint; from the start, at the end of a stage; from there, inside the last one.
    for batch in (2, 4, 5):
        run = BackboneRun(config, out)
        run.recipe = Failing(run.recipe, batch)
        with pytest.raises(KeyboardInterrupt):
            run.run()
    BackboneRun(config, out).run()
    resumed = _weights(out)
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    logs = [read_log(folder / "log.jsonl") for folder in (tmp_path / "whole", out)]
    assert [(r["step"], r.get("loss")) for r in logs[0]] == [
        (r["step"], r.get("loss")) for r in logs[1]
    ]


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_an_adapter_is_trained_resumed_and_exported_without_the_weights_of_its_base(
    family: str, decoder: str, tmp_path: Path
) -> None:
    config = _config(decoder, "cot", init=f"{decoder}/{family}", test=None, bare_steps=True)
    config = replace(config, lora_rank=2, optimizer="adamw", learning_rate=0.02)
    BackboneRun(config, tmp_path / "whole").run()
    run = BackboneRun(config, tmp_path / "killed")
    run.recipe = Failing(run.recipe, 5)
    with pytest.raises(KeyboardInterrupt):
        run.run()
    run = BackboneRun(config, tmp_path / "killed")
    run.run()
    whole, resumed = _weights(tmp_path / "whole"), _weights(tmp_path / "killed")
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
    config = _config(decoder, "codi", init=str(folder), lora_rank=2, optimizer="adamw")
    with pytest.raises(InputError, match="no tokens for the markers of thoughts"):
        BackboneRun(config, tmp_path / "run")


def test_a_killed_run_draws_the_same_numbers_when_it_continues(
    decoder: str, tmp_path: Path
) -> None:
    config = _config(decoder, "cot", validation_problems=1, test=None)
    config = replace(config, data=("everyday=2", "drills=1"), redraw_numbers=True)
    for out, kills in ((tmp_path / "whole", ()), (tmp_path / "killed", (2, 3))):
        for batch in (*kills, None):
            run = BackboneRun(config, out)
            run.mixture.pool_size = 8  # two batches: the run needs three pools
            if batch is None:
                run.run()
            else:
                run.recipe = Failing(run.recipe, batch)
                with pytest.raises(KeyboardInterrupt):
                    run.run()
    whole, resumed = _weights(tmp_path / "whole"), _weights(tmp_path / "killed")
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_bfloat16_products_train_an_adapter_that_is_stored_in_full(
    decoder: str, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"init": f"{decoder}/llama", "lora_rank": 2, "optimizer": "adamw"}
    losses = {}
    for precision in ("fp32", "bf16"):
        config = _config(decoder, "cot", precision=precision, **settings)
        run = BackboneRun(config, tmp_path / precision)
        run.run()
        log = (tmp_path / precision / "log.jsonl").read_text().splitlines()
        losses[precision] = [json.loads(line)["loss"] for line in log if "loss" in line]
        factors = load_file(tmp_path / precision / "reasoner" / "adapter_model.safetensors")
        assert {factor.dtype for factor in factors.values()} == {torch.float32}
    assert losses["bf16"] == pytest.approx(losses["fp32"], rel=0.05)
    assert losses["bf16"] != losses["fp32"]


def test_a_finished_run_can_be_run_again_and_changes_nothing(decoder: str, tmp_path: Path) -> None:
    config = _config(decoder, "cot")
    first = BackboneRun(config, tmp_path).run()
    weights = (tmp_path / "reasoner" / "model.safetensors").read_bytes()
    assert BackboneRun(config, tmp_path).run() == first
    assert (tmp_path / "reasoner" / "model.safetensors").read_bytes() == weights


@pytest.mark.parametrize(("recipe", "thoughts"), [("coconut", 2), ("codi", 2), ("cot", 0)])
def test_the_exported_folder_has_the_fields_of_the_format(
    recipe: str, thoughts: int, decoder: str, tmp_path: Path
) -> None:
    run = BackboneRun(_config(decoder, recipe), tmp_path)
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
    run = BackboneRun(_config(decoder, with_thoughts=False), tmp_path)
    assert [stage.steps for stage in run.recipe.stages] == [3, 6, 2]
    run.run()
    card = json.loads((tmp_path / "reasoner" / "reasoner.json").read_text())
    assert (card["kind"], card["thoughts"]) == ("coconut", 0)
    assert card["start_id"] != card["end_id"]
    assert "test_zeroed" not in json.loads((tmp_path / "result.json").read_text())


def test_the_result_has_the_accuracy_with_altered_thoughts(decoder: str, tmp_path: Path) -> None:
    BackboneRun(_config(decoder), tmp_path).run()
    result = json.loads((tmp_path / "result.json").read_text())
    assert {"validation", "test", "test_zeroed", "test_swapped"} <= set(result)
    assert (tmp_path / "text-reasoner" / "reasoner.json").exists()


def test_questions_that_are_too_long_are_left_out_of_a_mixture_and_counted(
    decoder: str, tmp_path: Path
) -> None:
    path = tmp_path / "train.jsonl"
    rows = [
        {"question": "Tom has 30 and 25." + " Why?" * count, "steps": ["30+25=55"], "answer": 55}
        for count in (0, 1, 900)
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    config = _config(decoder, "cot", data=(str(path),), redraw_numbers=True)
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
    BackboneRun(_config(decoder, "cot", data=(train,), test=test), tmp_path / "run").run()
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["test_questions_in_training"] == 1


@pytest.mark.parametrize("failure", ["loss", "gradient"])
def test_a_loss_or_gradient_that_is_not_finite_stops_the_run_and_overwrites_nothing(
    failure: str, decoder: str, tmp_path: Path
) -> None:
    run = BackboneRun(_config(decoder, checkpoint_every=1), tmp_path)
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
        BackboneRun(_config(decoder), tmp_path).run()
    assert old.read_bytes() == b"PK"
    old.unlink()
    index = tmp_path / "checkpoint" / "backbone.json"
    index.parent.mkdir()
    for text, said in (('{"step": 1', "not readable JSON"), ('{"step": 1}', "not a checkpoint")):
        index.write_text(text)
        with pytest.raises(FormatError, match=said):
            BackboneRun(_config(decoder), tmp_path).run()
        assert index.read_text() == text


def test_a_checkpoint_of_another_run_is_refused_by_the_option_that_differs(
    decoder: str, tmp_path: Path
) -> None:
    BackboneRun(_config(decoder, "cot"), tmp_path).run()
    with pytest.raises(MismatchError, match="begun with batch = 4, not 5"):
        BackboneRun(_config(decoder, "cot", batch=5), tmp_path).run()


def test_a_plan_fitted_to_a_time_is_decided_once(decoder: str, tmp_path: Path) -> None:
    run = BackboneRun(_config(decoder), tmp_path)
    fresh = {name: value.clone() for name, value in run.model.state_dict().items()}
    run.fit_to(0.01)
    assert all(torch.equal(fresh[name], value) for name, value in run.model.state_dict().items())
    again = BackboneRun(_config(decoder), tmp_path)
    again.fit_to(0.01)
    assert again.config == run.config
    again.run()
    with pytest.raises(MismatchError, match=r"--minutes 0\.01"):
        BackboneRun(_config(decoder), tmp_path).fit_to(0.02)
    BackboneRun(_config(decoder), tmp_path).fit_to(0.01)


def test_a_fitted_plan_keeps_its_proportions_and_what_it_leaves_out(decoder: str) -> None:
    config = _config(decoder, stage_steps=(10, 20, 2), settle_steps=6)
    fitted = fit_plan(config, planned_seconds=20, minutes=1 / 6)
    assert (fitted.stage_steps, fitted.settle_steps) == ((5, 10, 1), 3)
    without = fit_plan(replace(config, stage_steps=(0, 20, 2), settle_steps=0), 20, 1 / 6)
    assert (without.stage_steps, without.settle_steps) == ((0, 10, 1), 0)


def test_a_run_is_not_resumed_on_data_that_has_changed(decoder: str, tmp_path: Path) -> None:
    data = tmp_path / "rows.jsonl"
    rows = [
        {"question": f"{n} + 1?", "steps": [f"{n}+1={n + 1}"], "answer": n + 1} for n in range(9)
    ]
    data.write_text("\n".join(map(json.dumps, rows)))
    config = _config(decoder, "cot", data=(str(data),))
    BackboneRun(config, tmp_path / "run").run()
    data.write_text("\n".join(map(json.dumps, rows[1:])))
    with pytest.raises(MismatchError, match="begun with content of the data"):
        BackboneRun(config, tmp_path / "run").run()


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"recipe": "other"}, "recipe"),
        ({"stage_steps": (3, 3)}, "stage_steps"),
        ({"stage_steps": (3, 0, 3)}, "stage_steps"),
        ({"recipe": "codi", "stage_steps": (3,)}, "stage_steps"),
        ({"recipe": "cot", "stage_steps": (0,)}, "stage_steps"),
        ({"supervised_steps": -1}, "supervised_steps"),
        ({"supervised_steps": 2, "with_thoughts": False}, "supervised_steps"),
        ({"supervised_steps": 2, "redraw_numbers": True}, "redraw_numbers"),
        ({"data": ()}, "data"),
        ({"data": ("embedded:train=0.5", "drills")}, "weight to every"),
        ({"exclude": ("nowhere.jsonl",)}, "nowhere"),
        ({"data": ("drills",), "redraw_numbers": True, "validation": "held-out"}, "too small"),
        ({"supervised_steps": 2, "stage_steps": (3, 3, 3, 3)}, "stage_steps"),
        ({"batch": 0}, "batch"),
        ({"settle_steps": -1}, "settle_steps"),
        ({"optimizer": "sgd"}, "optimizer"),
        ({"learning_rate": float("nan")}, "learning_rate"),
        ({"learning_rate": -1.0}, "learning_rate"),
        ({"seed": -1}, "seed"),
        ({"train_problems": 0}, "problems"),
        ({"thoughts_per_step": 0}, "thoughts_per_step"),
        ({"recipe": "codi", "codi_thoughts": 0}, "thoughts"),
        ({"test": "nowhere.jsonl"}, "nowhere"),
    ],
)
def test_an_invalid_setting_is_named(decoder: str, changes: dict[str, Any], named: str) -> None:
    with pytest.raises(GtsError, match=named):
        BackboneRun(replace(_config(decoder), **changes), Path("unused"))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"family": "other"}, "family"),
        ({"layers": 0}, "layers"),
        ({"heads": 0}, "heads"),
        ({"heads": 3}, "width"),
        ({"family": "llama", "heads": 4, "kv_heads": 3}, "kv_heads"),
        ({"dropout": 2.0}, "dropout"),
    ],
)
def test_an_invalid_size_is_named(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError, match=f"{named} must be") as raised:
        Architecture(**changes)
    assert raised.value.param == named


def test_every_setting_has_a_description() -> None:
    config = BackboneConfig("cot", (1,))
    rows = [row for row in config.rows() if row.name != "architecture"]
    assert all(row.description.endswith(".") for row in (*rows, *config.architecture.rows()))


@pytest.mark.parametrize("minutes", [0.0, -1.0, float("nan"), float("inf")])
def test_minutes_must_be_positive_and_finite(decoder: str, minutes: float) -> None:
    with pytest.raises(InputError, match="minutes"):
        fit_plan(_config(decoder), planned_seconds=20, minutes=minutes)


def test_thoughts_are_measured_on_a_test_without_equations(decoder: str, tmp_path: Path) -> None:
    data = tmp_path / "rows.jsonl"
    data.write_text(json.dumps({"question": "1 + 1?", "answer": 2}))
    run = BackboneRun(_config(decoder, test=str(data)), tmp_path / "run")
    assert run.test is not None
    with pytest.raises(InputError, match="no equations"):
        BackboneRun(_config(decoder, "cot", test=str(data)), tmp_path / "run")


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
        BackboneRun(_config(decoder, validation=str(data)), tmp_path / "run")


def test_an_init_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"config\.json"):
        BackboneRun(_config("", init=str(tmp_path)), tmp_path)


def test_the_rate_warms_up_and_decays_within_each_stage(decoder: str) -> None:
    config = _config(decoder, warmup_steps=10, learning_rate=1.0, final_rate_share=0.1)
    rates = [learning_rate(config, within, 100, rate_share=1.0) for within in range(100)]
    assert rates[0] == pytest.approx(0.1)
    assert max(rates) == pytest.approx(1.0, abs=0.05)
    assert rates[-1] == pytest.approx(0.1, abs=0.01)


def test_newton_schulz_brings_singular_values_near_one() -> None:
    torch.manual_seed(0)
    for shape in ((24, 8), (8, 24), (8, 8)):
        values = torch.linalg.svdvals(orthogonalise(torch.randn(shape)))
        assert values.min() > 0.5
        assert values.max() < 1.5
