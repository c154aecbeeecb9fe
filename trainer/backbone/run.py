"""Trains a backbone: the loop that all recipes share, from the first step to the exported folder.

A step's data and dropout are functions of (seed, step) alone, so a run that was killed continues
bit for bit from its last checkpoint.
"""

import time
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedTokenizerFast

from latent.answers import common_prefix
from latent.calculator import Calculator
from latent.errors import MismatchError
from latent.files import read_json, write_json
from latent.folders import read_format
from latent.format import Base, Projection, PromptFormat, ReasonerFormat
from latent.reasoner import ProjectionMLP
from latent.store import load_projection, save_reasoner
from trainer.backbone import codi, curriculum
from trainer.backbone.adapter import trained_adapter
from trainer.backbone.config import BackboneConfig, fit_plan, learning_rate
from trainer.backbone.curriculum import Curriculum, Stage, plan_stages
from trainer.backbone.model import build_decoder, set_dropout, start_pretrained
from trainer.backbone.optimizer import find_tables, make_optimizer
from trainer.backbone.problems import Encoding, Problems, load_row_sets
from trainer.backbone.publish import draw_training
from trainer.backbone.spelled_thoughts import SpelledThoughts, Spelling
from trainer.backbone.step_codes import StepCodes
from trainer.backbone.thinking import (
    ABLATIONS,
    Examination,
    Feedback,
    describe,
    examine,
    identity,
)
from trainer.data.corpus import Corpus, step_rng
from trainer.data.tokenizer import embedded_tokenizer, find_markers
from trainer.runs.checkpoint import (
    Checkpoint,
    CheckpointFolder,
    RunLog,
    module_tensors,
    optimizer_tensors,
    restore_module,
    restore_optimizer,
)
from trainer.runs.divergence import clip_gradients
from trainer.runs.progress import Progress

_TRIAL_STEPS = 6


class BackboneRun:
    """One training run in one folder."""

    def __init__(self, config: BackboneConfig, out: Path, command: str = "") -> None:
        """Build tokenizer, model, data and recipe; nothing is written yet."""
        self.config, self.out, self.command = config, out, command
        self.step, self.seconds = 0, 0.0
        is_plain_codi = config.recipe == "codi" and not config.spelled_thoughts
        self.layout = codi.LAYOUT if is_plain_codi else curriculum.LAYOUT
        if config.bare_steps:
            self.layout = replace(self.layout, step_line="{}\n")
        # Read before anything is built, which takes seconds: bad data is refused at once.
        rows = load_row_sets(config)
        self.tokenizer = self._initialise()
        self.eos = _token_id(self.tokenizer.eos_token_id)
        self.start = self.end = self.eos  # text has no markers
        if config.recipe != "cot":
            self.start, self.end = find_markers(self.tokenizer, config.markers)
        encoding = self._encoding()
        self.answer_prefix = common_prefix(self.tokenizer, self.layout.answer_prefix + "{}")
        self.recipe = self._build_recipe()
        self.problems = Problems(config, rows, encoding, self.recipe.stages)

    def run(self) -> Examination:
        """Train to the end of the last stage, from the last checkpoint if there is one."""
        folder = self._checkpoint_folder()
        log_bytes = folder.resume(self._restore)
        write_json(self.out / "config.json", self.config.to_json())
        self.problems.write(self.out)
        total = sum(stage.steps for stage in self.recipe.stages)
        measured: Examination | None = None  # of the last step, on validation problems
        with (
            RunLog(self.out / "log.jsonl", log_bytes) as log,
            Progress(total, self.step) as progress,
        ):
            begun = time.monotonic() - self.seconds
            while self.step < total:
                index, within = self._place()
                stage = self.recipe.stages[index]
                if within == 0:
                    self.optimizer = self._new_optimizer()
                self._enter(stage)
                metrics = self._train_step(self.step, index, within)
                self.step += 1
                self.seconds = time.monotonic() - begun
                is_stage_end = within + 1 == stage.steps
                record = {"step": self.step, "stage": stage.name, "seconds": self.seconds}
                if self.step % self.config.log_every == 0 or is_stage_end:
                    log.write({**record, **metrics})
                    progress.show(self.step, {"stage": stage.name, **metrics})
                if self.step % self.config.examine_every == 0 or is_stage_end:
                    measured = self.measure(self.problems.validation, index)
                    accuracy = {"accuracy": measured.accuracy, "by_steps": measured.by_steps}
                    log.write({**record, **accuracy})
                    progress.note(f"{stage.name}: step {self.step}, {describe(measured)}")
                if is_stage_end:
                    assert measured is not None
                    self._export(index, measured)
                if self.step % self.config.checkpoint_every == 0 or is_stage_end:
                    folder.save(self._checkpoint(log.sync()))
        return self._finish(total, measured)

    def fit_to(self, minutes: float) -> None:
        """Scale the steps to a time on this machine; plan.json keeps them for when the run resumes."""
        path = self.out / "plan.json"
        plan = read_json(path) if path.exists() else None
        if plan is None or plan["minutes"] != minutes:
            if plan is not None and self._checkpoint_folder().exists:
                raise MismatchError(
                    f"{self.out} was planned for {plan['minutes']} minutes and has begun; give "
                    f"--minutes {plan['minutes']} to go on, or another --out",
                    param="minutes",
                )
            fitted = fit_plan(self.config, self._planned_seconds(), minutes)
            plan = {"minutes": minutes, **fitted.to_json()}
            write_json(path, plan)
        self.config = replace(
            self.config,
            stage_steps=tuple(plan["stage_steps"]),
            settle_steps=plan["settle_steps"],
        )
        self.recipe = self._build_recipe()
        self.problems.stages = self.recipe.stages  # plan.json may be of a command with others

    def measure(self, corpus: Corpus, stage: int, ablation: str | None = None) -> Examination:
        """Accuracy on a corpus in the layout of a stage."""
        with self._products():
            return examine(
                self.model,
                corpus,
                lambda examples: self.recipe.examination(stage, examples),
                self._make_feedback,
                ablation,
                self.recipe.exact_forced if self.recipe.stages[stage].is_forced else None,
            )

    def _make_feedback(self, rows: int) -> Feedback:
        """What a batch feeds back: the identity, or a projection, perhaps with a calculator."""
        if self.spelling is None:
            return self.feedback
        return self.spelling.feedback(self.feedback, self.model.get_input_embeddings(), rows)

    def _initialise(self) -> PreTrainedTokenizerFast:
        """Create the model, its other modules and the optimizer; return the tokenizer."""
        config = self.config
        torch.manual_seed(config.seed)
        self._base: Base | None = None  # only of an adapter
        if config.init is not None:
            start = start_pretrained(config, config.init)
            self.model, tokenizer = start.model, start.tokenizer
            self._base = start.base if config.lora_rank else None
        else:
            tokenizer = embedded_tokenizer(config.architecture.vocabulary)
            eos = _token_id(tokenizer.eos_token_id)
            self.model = build_decoder(config.architecture, len(tokenizer), eos)
        self._modules = nn.ModuleDict({"model": self.model})
        self.projection: ProjectionMLP | None = None
        self.feedback: Feedback = identity
        self.calculator: Calculator | None = None
        if config.calculator:
            rows = self.model.config.vocab_size
            self.calculator = Calculator(tokenizer, rows, torch.device("cpu"))
        self.spelling: Spelling | None = None
        if config.spelled_thoughts:
            self.spelling = Spelling(tokenizer, config.codi_thoughts, self.calculator)
        if config.recipe == "codi":
            self.projection = self._first_projection()
            self.feedback = self._modules["projection"] = self.projection
        self.codes: StepCodes | None = None
        if config.supervised_steps:
            self.codes = self._modules["codes"] = StepCodes(self.model.config.hidden_size)
        self._entered: Stage | None = None
        self.optimizer = self._new_optimizer()
        return tokenizer

    def _first_projection(self) -> ProjectionMLP:
        """The projection of the reasoner in --init if that has one of this size, else a new one."""
        width, hidden = self.model.config.hidden_size, self.config.projection_hidden
        folder = Path(self.config.init or "")
        if (folder / "projection.safetensors").is_file():
            shape = read_format(folder).projection
            if shape is not None and shape.hidden == hidden:
                return load_projection(folder, shape, width)
        projection = ProjectionMLP(width, hidden)
        if self.spelling is not None:
            self.spelling.start_projection(projection, self.model.get_input_embeddings())
        return projection

    def _encoding(self) -> Encoding:
        """How this decoder reads problems."""
        positions = getattr(self.model.config, "max_position_embeddings", None)
        return Encoding(
            self.tokenizer, self.layout, self.eos, positions, self.calculator, self.spelling
        )

    def _planned_seconds(self) -> float:
        """Time that all stages would take, from a few steps of each; then start from new weights."""
        planned = 0.0
        for index, stage in enumerate(self.recipe.stages):
            self._enter(stage)
            self._train_step(0, index, 0)
            begun = time.monotonic()
            for step in range(_TRIAL_STEPS):
                self._train_step(step, index, 0)
            planned += stage.steps * (time.monotonic() - begun) / _TRIAL_STEPS
        self._initialise()
        return planned

    def _train_step(self, step: int, index: int, within: int) -> dict[str, float]:
        """Update the weights by one batch; `within` counts the steps of stage `index`."""
        stage = self.recipe.stages[index]
        rng = step_rng(self.config.seed, step)
        torch.manual_seed(int(rng.integers(2**31)))  # dropout
        rate = learning_rate(self.config, within, stage.steps, stage.rate_share)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.model.train()
        examples = self.problems.draw(step, rng)
        with self._products():
            losses = self.recipe.loss(self.model, self.projection, index, examples, rng)
        losses["loss"].backward()  # type: ignore[no-untyped-call]
        norm = clip_gradients(
            self._modules.parameters(), self.config.clip_norm, losses["loss"], step
        )
        self.optimizer.step()
        self.optimizer.zero_grad()
        metrics = {name: value.item() for name, value in losses.items()}
        return {**metrics, "grad_norm": norm, "lr": rate}

    def _products(self) -> AbstractContextManager[None]:
        """Context in which matrix products have the precision of the settings."""
        return torch.autocast("cpu", torch.bfloat16, enabled=self.config.precision == "bf16")

    def _enter(self, stage: Stage) -> None:
        if stage != self._entered:
            rate = self.config.architecture.dropout if stage.has_dropout else 0.0
            set_dropout(self.model, rate, is_reduced=self.config.precision == "bf16")
            self._entered = stage

    def _place(self) -> tuple[int, int]:
        """Index of the current stage, and the number of its steps that are done."""
        within = self.step
        for index, stage in enumerate(self.recipe.stages):
            if within < stage.steps:
                return index, within
            within -= stage.steps
        raise AssertionError("all stages are done")

    def _new_optimizer(self) -> torch.optim.Optimizer:
        parameters = [each for each in self._modules.parameters() if each.requires_grad]
        return make_optimizer(self.config, parameters, find_tables(self._modules))

    def _build_recipe(self) -> Curriculum:
        config = self.config
        shared = (plan_stages(config), self.start, self.end, config.review_share, self.codes)
        dropout = config.architecture.dropout
        if self.spelling is not None:
            return SpelledThoughts(*shared, spelling=self.spelling, dropout=dropout)
        if config.recipe == "codi":
            return codi.Distillation(
                *shared,
                prefix_length=len(self.answer_prefix),
                gamma=config.gamma,
                dropout=dropout,
            )
        return Curriculum(*shared)

    def _checkpoint_folder(self) -> CheckpointFolder:
        same = {**self.config.to_json(), "content of the data": self.problems.digest}
        return CheckpointFolder(self.out, "backbone", same)

    def _checkpoint(self, log_bytes: int) -> Checkpoint:
        tensors = {
            "modules": module_tensors(self._modules),
            "optimizer": optimizer_tensors(self.optimizer),
        }
        return Checkpoint(self.step, log_bytes, tensors, {"seconds": self.seconds})

    def _restore(self, saved: Checkpoint) -> None:
        restore_module(self._modules, saved.tensors["modules"])
        restore_optimizer(self.optimizer, saved.tensors["optimizer"])
        self.step, self.seconds = saved.step, saved.values["seconds"]

    def _export(self, index: int, validation: Examination) -> None:
        """Save the reasoner of the last stage, and that of COCONUT's text stage."""
        stage = self.recipe.stages[index]
        is_last = index == len(self.recipe.stages) - 1
        if not is_last and (self.config.recipe == "codi" or not stage.is_text):
            return
        longest = max(sum(map(len, e.steps)) for e in self.problems.validation.examples)
        projection = self.projection
        format = ReasonerFormat(
            kind="cot" if stage.is_text else self.config.recipe,
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
            base=self._base,
            calculator=self.config.calculator,
            provenance={
                "command": self.command,
                "config": self.config.to_json(),
                "steps": self.step,
                "seconds": round(self.seconds),
                "validation": asdict(validation),
            },
        )
        folder = self.out / ("reasoner" if is_last else "text-reasoner")
        rank = self.config.lora_rank
        adapter = trained_adapter(self.model, rank) if rank else None
        save_reasoner(folder, format, self.model, self.tokenizer, projection, adapter)

    def _finish(self, total: int, measured: Examination | None) -> Examination:
        problems, last = self.problems, len(self.recipe.stages) - 1
        final = measured or self.measure(problems.validation, last)
        result: dict[str, Any] = {"steps": total, "seconds": round(self.seconds)}
        result["data"] = [source.to_json() for source in problems.mixture.sources]
        result["too_long"] = problems.too_long
        result["validation"] = asdict(final)
        if problems.test is not None:
            final = self.measure(problems.test, last)
            result["test"] = asdict(final)
            if problems.overlap is not None:
                result["test_questions_in_training"] = problems.overlap
        if self.recipe.stages[last].thoughts:
            part = "validation" if problems.test is None else "test"
            for name in ABLATIONS:
                measured = self.measure(problems.test or problems.validation, last, name)
                result[f"{part}_{name}"] = asdict(measured)
        write_json(self.out / "result.json", result)
        draw_training(self.out / "log.jsonl", self.out)
        return final


def _token_id(token: int | list[int] | None) -> int:
    assert isinstance(token, int)
    return token
