"""Loads and checks what is measured: the reasoner, its samplers and the questions."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import torch

from latent.errors import FormatError, InputError
from latent.folders import SamplerCard, read_sampler_card, sampler_digest, weights_digest
from latent.noise import derive_seed
from latent.reasoner import Reasoner
from latent.samplers import Sampler
from latent.specs import SamplerSpec
from latent.store import load_reasoner, load_sampler
from latent.verifier_file import find_verifier
from latent.zoo import resolve_model, resolve_sampler
from trainer.data.sources import Dataset, Malformed, Placed, load_dataset
from trainer.evaluation.config import EvaluationConfig, check_distinct
from trainer.evaluation.records import Question
from trainer.runs.ranks import rank_device

__all__ = ["Subject", "load_subject"]


@dataclass(frozen=True)
class Subject:
    """A reasoner, its samplers by spec, and the questions."""

    reasoner: Reasoner
    samplers: dict[str, Sampler]
    sampler_digests: dict[str, str]  # of the learned ones
    seed_groups: list[tuple[str, ...]]  # learned ones whose trainings differ only in the seed
    data: Dataset
    questions: tuple[Question, ...]
    malformed: tuple[Malformed, ...]  # with the questions that are too long
    data_digest: str

    def identity(self, config: EvaluationConfig) -> dict[str, Any]:
        """Settings that must be equal for a command to resume another one's results."""
        return {
            "model fingerprint": self.reasoner.fingerprint,
            "precision": self.reasoner.precision,
            "limit": config.limit,
            "data digest": self.data_digest,
            "samplers": list(self.samplers),
            **{f"weights of {spec}": digest for spec, digest in self.sampler_digests.items()},
            "budget": config.budget,
            "seed": config.seed,
            "calibration": _calibration_digest(self.reasoner),
            **_verifier_identity(self.reasoner),
        }

    def model_card(self) -> dict[str, Any]:
        """The reasoner, as summary.json stores it."""
        return {
            "name": self.reasoner.name,
            "kind": self.reasoner.format.kind,
            "fingerprint": self.reasoner.fingerprint,
            "thoughts": self.reasoner.format.thoughts,
            "width": self.reasoner.width,
            "parameters": self.reasoner.parameter_count,
            "precision": self.reasoner.precision,
        }

    def data_card(self) -> dict[str, Any]:
        """The questions, as summary.json stores them."""
        return {
            "name": self.data.name,
            "rows": len(self.questions),
            "malformed": [{"line": row.line, "reason": row.reason} for row in self.malformed],
            "digest": self.data_digest,
        }


def load_subject(config: EvaluationConfig) -> Subject:
    """Load everything that the configuration names; raises if any of it is unusable."""
    data = load_dataset(config.data, config.limit)
    folder = resolve_model(config.model)
    sources = {str(spec): resolve_sampler(folder, spec) for spec in config.samplers}
    check_distinct(
        [
            str(spec) if path is None else f"{path.resolve()}@{spec.value} {spec.is_auto}"
            for spec, path in zip(config.samplers, sources.values(), strict=True)
        ]
    )
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    device = rank_device(config.device)
    reasoner = load_reasoner(
        folder,
        device=str(device),
        dtype=config.dtype,
        name=folder.resolve().name,
    )
    samplers = {
        str(spec): load_sampler(reasoner, spec, sources[str(spec)]) for spec in config.samplers
    }
    questions, too_long = _encode(reasoner, data.rows, config.seed)
    if not questions:
        raise FormatError(
            f"{data.name} holds no question that {reasoner.name} can be asked ({too_long[0]})"
        )
    return Subject(
        reasoner=reasoner,
        samplers=samplers,
        sampler_digests={
            str(spec): sampler_digest(path, is_auto=spec.is_auto)
            for spec in config.samplers
            if (path := sources[str(spec)]) is not None
        },
        seed_groups=_seed_groups(
            {spec: read_sampler_card(path) for spec, path in sources.items() if path}
        ),
        data=data,
        questions=tuple(questions),
        malformed=tuple(sorted([*data.malformed, *too_long], key=lambda row: row.line)),
        data_digest=_digest(data.rows),
    )


def _seed_groups(cards: Mapping[str, SamplerCard]) -> list[tuple[str, ...]]:
    """Groups of two or more samplers, at one scale of σ, whose trainings differ only in the seed."""
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for spec, card in cards.items():
        config = card.training.get("config")
        if isinstance(config, dict):
            own = SamplerSpec.parse(spec)
            scale = "auto" if own.is_auto else own.value
            data = [card.training.get("data"), card.training.get("questions")]
            recipe = [data, {**config, "seed": None}, scale]
            groups[json.dumps(recipe, sort_keys=True)].append(spec)
    return [tuple(specs) for specs in groups.values() if len(specs) > 1]


def _encode(
    reasoner: Reasoner, rows: Sequence[Placed], seed: int
) -> tuple[list[Question], list[Malformed]]:
    """Encode the questions; a question's index, which its seed derives from, is its row's number."""
    questions, refused = [], []
    for index, placed in enumerate(rows):
        row, truth = placed.row, Decimal(placed.row.answer)
        try:
            prompt = reasoner.encode(row.question)
        except InputError as error:
            refused.append(Malformed(placed.line, str(error), placed.unit))
            continue
        questions.append(
            Question(
                index=index,
                prompt=prompt,
                truth=truth,
                target=_target(reasoner, truth),
                operations=len(row.steps) or None,
                seed=derive_seed(seed, "evaluation", index),
                familiarity=reasoner.calibrations.familiarity(row.question),
            )
        )
    return questions, refused


def _target(reasoner: Reasoner, truth: Decimal) -> tuple[int, ...] | None:
    """Tokens of the answer; None if the reasoner's format can't express it."""
    try:
        return reasoner.encode_answer(truth)
    except InputError:
        return None


def _verifier_identity(reasoner: Reasoner) -> dict[str, str]:
    """The hash of its verifier's weights, if it has one."""
    place = None
    if reasoner.folder is not None:
        place = find_verifier(reasoner.folder, reasoner.fingerprint)
    return {} if place is None else {"weights of the verifier": weights_digest(place)}


def _calibration_digest(reasoner: Reasoner) -> str | None:
    """Hash of its calibrations; None without any."""
    found = reasoner.calibrations
    if not found.fitted:
        return None
    pairs = [] if found.reference is None else sorted(found.reference.pairs)
    return hashlib.sha256(repr((found.fitted, pairs)).encode()).hexdigest()


def _digest(rows: Sequence[Placed]) -> str:
    texts = [(placed.row.question, placed.row.answer) for placed in rows]
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()
