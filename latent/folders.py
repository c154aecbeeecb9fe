"""Reasoner folders as files: what is in them and their fingerprint. Needs no torch, so it is quick.

A reasoner folder is a transformers folder plus `reasoner.json`, `projection.safetensors` for CODI, and
`samplers/NAME/` with `sampler.safetensors` and `sampler.json`; the one called `default` is plain `gts`.
Where `reasoner.json` names a base, an adapter stands in place of the weights (`latent.adapter`).
"""

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from latent.adapter import find_base, read_adapter
from latent.errors import FormatError
from latent.files import raw_tensors, read_json, tensors_digest
from latent.format import ReasonerFormat

__all__ = [
    "DEFAULT_SAMPLER",
    "LOG_STD_FLOOR",
    "SamplerCard",
    "check_base",
    "fingerprint",
    "read_format",
    "read_sampler_card",
    "sampler_digest",
    "sampler_folders",
    "sampler_spec",
    "weights_digest",
]

DEFAULT_SAMPLER = "default"
LOG_STD_FLOOR = -2.0  # the paper's


@dataclass(frozen=True)
class SamplerCard:
    """`sampler.json`: the reasoner that a sampler is for, and how it was trained."""

    kind: str
    width: int
    reasoner_fingerprint: str
    training: dict[str, Any] = field(default_factory=dict)
    results: dict[str, Any] = field(default_factory=dict)
    # Of σ for gts@auto, each by the first trajectory index that it holds for.
    scales: dict[str, float] = field(default_factory=dict)
    log_std_floor: float = LOG_STD_FLOOR
    directions: int = 0  # of the thoughts, along which it perturbs; 0: every number of a thought

    @property
    def schedule(self) -> dict[int, float]:
        """`scales` with numbers for keys."""
        return {int(index): scale for index, scale in self.scales.items()}


def read_format(folder: Path) -> ReasonerFormat:
    """Read `reasoner.json`."""
    return ReasonerFormat.from_json(read_json(folder / "reasoner.json"))


def check_base(folder: Path) -> None:
    """Refuse a reasoner whose base is not here, and say how to install it."""
    base = read_format(folder).base
    if base is not None:
        find_base(folder, base)


def fingerprint(folder: Path) -> str:
    """Hash all weights and the fields of `reasoner.json` that change computation."""
    format, weights = read_format(folder), weights_digest(folder)
    if format.weights_sha256 not in (None, weights):
        raise FormatError(
            f"{folder}: the weights are not those that reasoner.json was written for; they are damaged, "
            "or were changed on purpose: then remove weights_sha256 from reasoner.json"
        )
    fields = format.computed()
    if format.base is not None:
        fields["adapter_scale"] = read_adapter(folder).scale
    computed = json.dumps(fields, sort_keys=True)
    return hashlib.sha256(f"{weights}{computed}".encode()).hexdigest()


def weights_digest(folder: Path) -> str:
    """Hash names, types, shapes and bytes of all tensors in a folder, in the order of their names."""
    paths = sorted(folder.glob("*.safetensors"))
    return tensors_digest(tensor for path in paths for tensor in raw_tensors(path))


def read_sampler_card(folder: Path) -> SamplerCard:
    """Read `sampler.json`."""
    data = read_json(folder / "sampler.json")
    try:
        version = data.pop("format")
        card = SamplerCard(**data)
        types = (type(card.width), type(card.reasoner_fingerprint))
        if types != (int, str) or {type(card.training), type(card.results)} != {dict}:
            raise TypeError("width, reasoner_fingerprint, training or results has the wrong type")
        if not all(
            index.isdecimal() and isinstance(scale, int | float) and 0 < scale <= 10
            for index, scale in card.scales.items()
        ):
            raise TypeError("scales must be numbers above 0 and up to 10, by trajectory index")
        floor = card.log_std_floor
        if type(floor) not in (int, float) or not -100 <= floor <= 10:
            raise TypeError("log_std_floor must be a number from -100 to 10")
        if type(card.directions) is not int or not 0 <= card.directions <= card.width:
            raise TypeError("directions must be a whole number from 0 to width")
    except (AttributeError, KeyError, TypeError) as error:
        raise FormatError(f"{folder / 'sampler.json'} is not a sampler card: {error}") from error
    if version != 1 or card.kind != "gts":
        raise FormatError(
            f"{folder / 'sampler.json'}: format {version}, kind {card.kind!r} is unknown"
        )
    return card


def sampler_digest(folder: Path, *, is_auto: bool) -> str:
    """Hash a learned sampler: its weights, and as gts@auto its scales too."""
    weights = weights_digest(folder)
    if not is_auto:
        return weights
    scales = json.dumps(sorted(read_sampler_card(folder).schedule.items()))
    return hashlib.sha256(f"{weights}{scales}".encode()).hexdigest()


def sampler_folders(reasoner_folder: Path) -> dict[str, Path]:
    """List the samplers that a reasoner folder carries, by name."""
    cards = sorted((reasoner_folder / "samplers").glob("*/sampler.json"))
    return {card.parent.name: card.parent for card in cards}


def sampler_spec(name: str) -> str:
    """The spec of a sampler in a reasoner's folder, by its folder's name."""
    return "gts" if name == DEFAULT_SAMPLER else f"gts:{name}"
