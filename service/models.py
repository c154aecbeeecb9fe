"""The models that are served: finds, checks and describes them from their files, without torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from latent.adapter import find_base
from latent.calibration import Calibrations
from latent.calibration_file import load_calibrations
from latent.errors import InputError, MismatchError, NotFoundError, SpecError
from latent.examples import Example, read_examples
from latent.files import read_json
from latent.folders import (
    DEFAULT_SAMPLER,
    SamplerCard,
    fingerprint,
    read_format,
    read_sampler_card,
    sampler_folders,
    sampler_spec,
)
from latent.format import ReasonerFormat
from latent.specs import SamplerSpec
from latent.zoo import resolve_model
from service.engine.messages import ModelPlace

__all__ = ["Catalog", "ServedModel"]


@dataclass(frozen=True)
class ServedModel:
    """What the API process knows of one reasoner."""

    name: str
    folder: Path
    format: ReasonerFormat
    width: int
    fingerprint: str
    samplers: Mapping[str, SamplerCard]
    calibrations: Calibrations
    examples: tuple[Example, ...] = ()

    def default_samplers(self) -> list[str]:
        """One spec of every kind that this model supports."""
        if not self.format.is_latent:
            return ["dropout:0.1", "token:1.0"]
        return ["dropout:0.1", "gaussian:1.0", *map(sampler_spec, self.samplers)]

    def check_sampler(self, text: str | None) -> SamplerSpec:
        """Parse a sampler spec for this model; None is its default. Names only: a path is refused."""
        spec = SamplerSpec.parse(text or self.format.default_sampler)
        self.format.check_sampler(spec, self.name)
        if spec.kind == "gts" and (spec.name or DEFAULT_SAMPLER) not in self.samplers:
            known = ", ".join(self.default_samplers())
            raise SpecError(
                f"{self.name} has no sampler {str(spec)!r}; it has {known}", param="sampler"
            )
        return spec


class Catalog:
    """All models that are served; the first is the default."""

    def __init__(self, names: Sequence[str]) -> None:
        models = [_read(name) for name in names]
        self._models = {model.name: model for model in models}
        if len(self._models) < len(models):
            raise InputError("two models have the same name; rename a folder", param="model")
        self.default = models[0].name

    def get(self, name: str | None) -> ServedModel:
        """Find a model by name."""
        model = self._models.get(name or self.default)
        if model is None:
            known = ", ".join(self._models)
            raise NotFoundError(f"no model {name!r} is served; there is {known}", param="model")
        return model

    def all(self) -> list[ServedModel]:
        """All models, the default first."""
        return list(self._models.values())

    def places(self) -> tuple[ModelPlace, ...]:
        """What a worker needs to load them."""
        return tuple(ModelPlace(each.name, each.folder, each.fingerprint) for each in self.all())


def _read(name: str) -> ServedModel:
    folder = resolve_model(name).resolve()
    format, own = read_format(folder), fingerprint(folder)
    if format.base is not None:
        find_base(folder, format.base)  # missing: said here, and not by a worker that can't start
    samplers = {name: read_sampler_card(path) for name, path in sampler_folders(folder).items()}
    for sampler, card in samplers.items():
        if card.reasoner_fingerprint != own:
            raise MismatchError(
                f"sampler {sampler!r} in {folder} was trained for another reasoner; remove it",
                param="sampler",
            )
    config = read_json(folder / "config.json")
    width = int(config.get("hidden_size") or config.get("n_embd") or 0)
    return ServedModel(
        name=folder.name,
        folder=folder,
        format=format,
        width=width,
        fingerprint=own,
        samplers=samplers,
        calibrations=load_calibrations(folder, own),
        examples=read_examples(folder, own),
    )
