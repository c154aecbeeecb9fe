"""Trains a backbone: the loop that all recipes share, from the first step to the exported folder.

A step's data and dropout are functions of (seed, step) alone, so a run that was killed continues
bit for bit from its last checkpoint.
"""

import hashlib
import math
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from latent.answer_prefix import common_prefix
from latent.errors import InputError, MismatchError
from latent.files import read_json, write_json
from latent.format import Projection, PromptFormat, ReasonerFormat
from latent.reasoner import ProjectionMLP
from latent.store import save_reasoner
from trainer.backbone.coconut import Stage
from trainer.backbone.config import BackboneConfig, check_config, fit_plan, learning_rate
from trainer.backbone.curves import draw_backbone_curves
from trainer.backbone.examine import ABLATIONS, Examination, describe, examine
from trainer.backbone.model import build_decoder, load_pretrained, set_dropout
from trainer.backbone.optimizer import find_tables, make_optimizer
from trainer.backbone.recipes import Recipe, build_recipe, layout_of
from trainer.backbone.step_codes import StepCodes
from trainer.backbone.thinking import Feedback, identity
from trainer.data.corpus import Corpus, encode_rows, step_rng
from trainer.data.sources import load_rows
from trainer.data.tokenizer import END_LATENT, START_LATENT, embedded_tokenizer
from trainer.runs.checkpoint import JsonLog, load_checkpoint, save_checkpoint
from trainer.runs.errors import DivergedError
from trainer.runs.progress import Progress

TRIAL_STEPS = 6


class BackboneRun:
    """One training run in one folder."""

    def __init__(self, config: BackboneConfig, out: Path, command: str = "") -> None:
        """Build tokenizer, model, data and recipe; nothing is written yet."""
        check_config(config)
        self.config, self.out, self.command = config, out, command
        self._checkpoint = out / "checkpoint.pt"
        self._data = hashlib.sha256()  # of all rows, to know them again
        self.step, self.seconds = 0, 0.0
        self.layout = layout_of(config)
        self.tokenizer = self._initialise()
        self.eos = _only(self.tokenizer.eos_token_id)
        self.start = _only(self.tokenizer.convert_tokens_to_ids(START_LATENT))
        self.end = _only(self.tokenizer.convert_tokens_to_ids(END_LATENT))
        self.train = self._load(config.data, config.train_problems)
        self.validation = self._load(config.validation, config.validation_problems)
        self.test = self._load(config.test, config.test_problems) if config.test else None
        template = self.layout.answer_prefix + "{}"
        self.answer_prefix = common_prefix(self.tokenizer, template)
        self.recipe = self._build_recipe()
        self._check_data()

    def run(self) -> Examination:
        """Train to the end of the plan, from the last checkpoint if there is one."""
        self._resume()
        write_json(self.out / "config.json", self.config.as_plain())
        log = JsonLog(self.out / "log.jsonl", self.step)
        total = sum(stage.steps for stage in self.recipe.stages)
        with Progress(total, self.step) as progress:
            begun = time.monotonic() - self.seconds
            while self.step < total:
                index, within = self._place()
                stage = self.recipe.stages[index]
                if within == 0:
                    self.optimizer = self._new_optimizer()
                self._enter(stage)
                metrics = self._train_step(index, stage, within)
                self.step += 1
                self.seconds = time.monotonic() - begun
                is_stage_end = within + 1 == stage.steps
                record = {"step": self.step, "stage": stage.name, "seconds": self.seconds}
                if self.step % self.config.log_every == 0 or is_stage_end:
                    log.write({**record, **metrics})
                    progress.show(self.step, {"stage": stage.name, **metrics})
                if self.step % self.config.examine_every == 0 or is_stage_end:
                    measured = self.measure(self.validation, index)
                    by_steps = {"accuracy": measured.accuracy, "by_steps": measured.by_steps}
                    log.write({**record, **by_steps})
                    progress.note(f"{stage.name}: step {self.step}, {describe(measured)}")
                if is_stage_end:
                    self._export(index)
                if self.step % self.config.checkpoint_every == 0 or is_stage_end:
                    self._save()
        return self._finish(total)

    def fit_to(self, minutes: float) -> None:
        """Scale the plan to a time on this machine, once: a restart reads what was decided."""
        path = self.out / "plan.json"
        plan = read_json(path) if path.exists() else None
        if plan is not None and plan["minutes"] != minutes and self._checkpoint.exists():
            raise MismatchError(
                f"{self.out} was planned for {plan['minutes']} minutes and has begun; give "
                f"--minutes {plan['minutes']} to go on, or another --out",
                param="minutes",
            )
        if plan is None or plan["minutes"] != minutes:
            fitted = fit_plan(self.config, self._planned_seconds(), minutes)
            plan = {"minutes": minutes, **fitted.as_plain()}
            write_json(path, plan)
        self.config = replace(
            self.config,
            stage_steps=tuple(plan["stage_steps"]),
            settle_steps=plan["settle_steps"],
        )
        self.recipe = self._build_recipe()

    def measure(self, corpus: Corpus, stage: int, ablation: str | None = None) -> Examination:
        """Return the accuracy on a corpus, as the stage wants the answer."""
        return examine(
            self.model,
            corpus,
            lambda examples: self.recipe.examination(stage, examples),
            self.feedback,
            ablation,
            self.codes if self.recipe.stages[stage].is_told else None,
        )

    def _initialise(self) -> PreTrainedTokenizerFast:
        config = self.config
        torch.manual_seed(config.seed)
        self.model, tokenizer = _build_model(config)
        self.projection: ProjectionMLP | None = None
        self.feedback: Feedback = identity
        if config.recipe == "codi":
            self.projection = ProjectionMLP(self.model.config.hidden_size, config.projection_hidden)
            self.feedback = self.projection
        self.codes: StepCodes | None = None
        if config.supervised_steps:
            self.codes = StepCodes(self.model.config.hidden_size)
        self.step = 0
        self._entered: Stage | None = None
        self.optimizer = self._new_optimizer()
        return tokenizer

    def _planned_seconds(self) -> float:
        planned = 0.0
        for index, stage in enumerate(self.recipe.stages):
            self._enter(stage)
            self._train_step(index, stage, 0)
            begun = time.monotonic()
            for self.step in range(TRIAL_STEPS):
                self._train_step(index, stage, 0)
            planned += stage.steps * (time.monotonic() - begun) / TRIAL_STEPS
        self._initialise()
        return planned

    def _train_step(self, index: int, stage: Stage, within: int) -> dict[str, float]:
        rng = step_rng(self.config.seed, self.step)
        torch.manual_seed(int(rng.integers(2**31)))  # dropout
        rate = learning_rate(self.config, within, stage.steps, stage.rate_share)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.model.train()
        examples = self.train.draw(self.config.batch, rng)
        losses = self.recipe.loss(self.model, self.projection, index, examples, rng)
        if not math.isfinite(losses["loss"].item()):
            raise DivergedError(
                f"the loss is {losses['loss'].item()} at step {self.step} (stage {stage.name}); "
                f"the last checkpoint is kept: lower --lr (now {self.config.learning_rate})"
            )
        losses["loss"].backward()  # type: ignore[no-untyped-call]
        norm = nn.utils.clip_grad_norm_(self._parameters(), self.config.clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()
        metrics = {name: value.item() for name, value in losses.items()}
        return {**metrics, "grad_norm": float(norm), "lr": rate}

    def _enter(self, stage: Stage) -> None:
        if stage != self._entered:
            rate = self.config.architecture.dropout if stage.has_dropout else 0.0
            set_dropout(self.model, rate)
            self._entered = stage

    def _place(self) -> tuple[int, int]:
        within = self.step
        for index, stage in enumerate(self.recipe.stages):
            if within < stage.steps:
                return index, within
            within -= stage.steps
        raise AssertionError("the plan is over")

    def _parameters(self) -> list[nn.Parameter]:
        return [parameter for part in self._parts() for parameter in part.parameters()]

    def _parts(self) -> list[nn.Module]:
        parts = (self.model, self.projection, self.codes)
        return [part for part in parts if part is not None]

    def _new_optimizer(self) -> torch.optim.Optimizer:
        tables = set().union(*map(find_tables, self._parts()))
        return make_optimizer(self.config, self._parameters(), tables)

    def _load(self, source: str, limit: int) -> Corpus:
        rows = load_rows(source, limit)
        self._data.update(repr(rows).encode())
        return Corpus(encode_rows(rows, self.tokenizer, self.layout, self.eos))

    def _check_data(self) -> None:
        """Refuse now what would fail a stage, perhaps hours from now."""
        limit = getattr(self.model.config, "max_position_embeddings", None)
        stages = self.recipe.stages
        thoughts = max(stage.thoughts for stage in stages)
        reads_steps = any(stage.is_text or stage.is_told for stage in stages)
        sources = (  # the test is for the last stage only
            (self.config.data, self.train, reads_steps),
            (self.config.validation, self.validation, reads_steps),
            (self.config.test, self.test, stages[-1].is_text),
        )
        for source, corpus, needs_steps in sources:
            if corpus is None:
                continue
            if needs_steps and not any(example.steps for example in corpus.examples):
                raise InputError(f"{source} has no equations, and {self.config.recipe} needs them")
            for number, example in enumerate(corpus.examples, start=1):
                length = example.length + thoughts + 2  # <start_latent> and <end_latent>
                if limit is not None and length > limit:
                    raise InputError(
                        f"{source}, row {number} has {length} tokens with its thoughts; the decoder "
                        f"takes {limit}: leave it out"
                    )

    def _build_recipe(self) -> Recipe:
        prefix_length = len(self.answer_prefix)
        return build_recipe(self.config, self.start, self.end, prefix_length, self.codes)

    def _save(self) -> None:
        save_checkpoint(
            self._checkpoint,
            {
                "step": self.step,
                "data": self._data.hexdigest(),
                "seconds": self.seconds,
                "config": self.config.as_plain(),
                "model": self.model.state_dict(),
                "projection": self.projection.state_dict() if self.projection else None,
                "codes": self.codes.state_dict() if self.codes else None,
                "optimizer": self.optimizer.state_dict(),
            },
        )

    def _resume(self) -> None:
        state = load_checkpoint(self._checkpoint)
        if state is None:
            return
        wanted = self.config.as_plain()
        differing = [name for name in wanted if state["config"].get(name) != wanted[name]]
        if not differing and state.get("data") != self._data.hexdigest():
            differing = ["content of its data"]
        if differing:
            raise MismatchError(
                f"{self._checkpoint} is of a run with another {', '.join(differing)}; "
                "repeat its options or choose another --out"
            )
        self.model.load_state_dict(state["model"])
        if self.projection:
            self.projection.load_state_dict(state["projection"])
        if self.codes:
            self.codes.load_state_dict(state["codes"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step, self.seconds = state["step"], state["seconds"]

    def _export(self, index: int) -> None:
        """Write the reasoner of the last stage, and COCONUT's text stage as one in its own right."""
        stage = self.recipe.stages[index]
        is_last = index == len(self.recipe.stages) - 1
        if not is_last and (self.config.recipe == "codi" or not stage.is_text):
            return
        longest = max(sum(map(len, e.steps)) for e in self.validation.examples)
        projection = self.projection
        format = ReasonerFormat(
            kind="cot" if stage.is_text else self.config.recipe,  # type: ignore[arg-type]
            thoughts=stage.thoughts,
            prompt=PromptFormat(
                collapse_spaces=self.config.recipe == "codi", suffix=self.layout.question_suffix
            ),
            answer_template=self.layout.answer_prefix + "{}",
            answer_prefix_ids=self.answer_prefix,
            eos_ids=(self.eos,),
            start_id=None if stage.is_text else self.start,
            end_id=None if stage.is_text else self.end,
            max_answer_tokens=12,
            max_reasoning_tokens=longest * 3 // 2 if stage.is_text else 0,
            projection=None if projection is None else Projection(projection.fc1.out_features),
            provenance={
                "command": self.command,
                "config": self.config.as_plain(),
                "steps": self.step,
                "seconds": round(self.seconds),
                "validation": asdict(self.measure(self.validation, index)),
            },
        )
        folder = self.out / ("reasoner" if is_last else "text-reasoner")
        save_reasoner(folder, format, self.model, self.tokenizer, projection)

    def _finish(self, total: int) -> Examination:
        last = len(self.recipe.stages) - 1
        final = self.measure(self.validation, last)
        result: dict[str, Any] = {"steps": total, "seconds": round(self.seconds)}
        result["validation"] = asdict(final)
        if self.test is not None:
            final = self.measure(self.test, last)
            result["test"] = asdict(final)
            if self.recipe.stages[last].thoughts:
                for name in ABLATIONS:
                    result[f"test_{name}"] = asdict(self.measure(self.test, last, name))
        write_json(self.out / "result.json", result)
        draw_backbone_curves(self.out / "log.jsonl", self.out / "curves.png")
        return final


def _only(token: int | list[int] | None) -> int:
    assert isinstance(token, int)
    return token


def _build_model(config: BackboneConfig) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    if config.init is not None:
        model, tokenizer = load_pretrained(Path(config.init))
    else:
        tokenizer = embedded_tokenizer(config.architecture.vocabulary)
        model = build_decoder(config.architecture, len(tokenizer), int(tokenizer.eos_token_id))
    return model, tokenizer
