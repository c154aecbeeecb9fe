"""The models and panels that are served: finds and checks them from their files, without torch."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from latent.calibration import Calibrations
from latent.calibration_file import load_calibrations
from latent.errors import InputError, MismatchError, NotFoundError, SpecError
from latent.examples import Example, read_examples
from latent.files import read_json
from latent.folders import (
    DEFAULT_SAMPLER,
    SamplerCard,
    check_base,
    fingerprint,
    read_format,
    read_sampler_card,
    sampler_folders,
    sampler_spec,
)
from latent.format import ReasonerFormat
from latent.panel import Member, Panel, check_panel_vote
from latent.panel_file import PanelFiles, calibrated_panel, parse_panel, read_panel
from latent.specs import SamplerSpec
from latent.verifier_file import find_verifier
from latent.votes import VoteKind
from latent.zoo import find_panel, resolve_model
from service.engine.messages import ModelPlace

__all__ = ["AD_HOC_PANEL", "Catalog", "ServedModel", "ServedPanel"]

# The name of the panels that requests make; it is one name, since metrics are labelled with it.
AD_HOC_PANEL = "panel"


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
    has_verifier: bool = False

    @property
    def votes(self) -> tuple[VoteKind, ...]:
        """The votes that a request may name."""
        return (*self.format.votes, "verifier") if self.has_verifier else self.format.votes

    def check_vote(self, vote: VoteKind) -> None:
        """Refuse a vote that its trajectories can't take part in."""
        self.format.check_vote(vote, self.name, has_verifier=self.has_verifier)

    @property
    def default_sampler(self) -> str | None:
        """The sampler of a request that names none; None if that one has not been trained yet."""
        try:
            return str(self.check_sampler(None))
        except SpecError:
            return None

    def default_samplers(self) -> list[str]:
        """One spec of every kind that this model supports."""
        return self.format.usual_samplers(list(map(sampler_spec, self.samplers)))

    def check_sampler(self, text: str | None) -> SamplerSpec:
        """Parse a sampler spec for this model; None is its default. Names only: a path is refused."""
        spec = SamplerSpec.parse(text or self.format.default_sampler)
        self.format.check_sampler(spec, self.name)
        if spec.kind == "gts" and (spec.name or DEFAULT_SAMPLER) not in self.samplers:
            known = ", ".join(self.default_samplers())
            raise SpecError(
                f"{self.name} has no sampler {str(spec)!r}; it has {known}", param="sampler"
            )
        if spec.is_auto and not self.samplers[spec.name or DEFAULT_SAMPLER].scales:
            raise SpecError(
                f"{self.name}: sampler {str(spec)!r} needs scales in its card, and there are none; "
                "give one, as in gts@0.5",
                param="sampler",
            )
        return spec


@dataclass(frozen=True)
class ServedPanel:
    """A panel, with its calibrations, and the models of its members in order."""

    panel: Panel
    models: tuple[ServedModel, ...]

    @property
    def name(self) -> str:
        """Its name in requests."""
        return self.panel.name

    @property
    def fingerprint(self) -> str:
        """Hash of its members, the weights of their reasoners and how the budget is divided."""
        parts = [
            f"{member.label} {member.share} {model.fingerprint}"
            for member, model in zip(self.panel.members, self.models, strict=True)
        ]
        text = "\n".join([*parts, self.panel.split, str(self.panel.sure)])
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def votes(self) -> tuple[VoteKind, ...]:
        """The votes that all of its members can take part in."""
        first, *others = (model.format.votes for model in self.models)
        return tuple(vote for vote in first if all(vote in each for each in others))

    def check_vote(self, vote: VoteKind) -> None:
        """Refuse a vote that one of the members can't take part in."""
        check_panel_vote(vote)
        for model in self.models:
            model.format.check_vote(vote, model.name)


class Catalog:
    """All models and panels that are served; the first is the default.

    A panel's members are served as well, each under its own name. `panels` are written as
    NAME=MODEL:SAMPLER,MODEL:SAMPLER, where MODEL is a served name, an embedded reasoner or a folder.
    """

    def __init__(self, names: Sequence[str], panels: Sequence[str] = ()) -> None:
        self._models: dict[str, ServedModel] = {}
        self._panels: dict[str, ServedPanel] = {}
        self._named: set[str] = set()  # models that `names` has, and not only a panel
        for name in names:
            folder = find_panel(name)
            if folder is None:
                self._add_model(_read(resolve_model(name).resolve()), is_named=True)
            else:
                self._add_panel(read_panel(folder))
        for text in panels:
            name, is_given, members = text.partition("=")
            if not is_given or not name.strip():
                raise InputError(
                    f"{text!r} is no panel; write NAME=coconut-tiny:gts,cot-tiny", param="panel"
                )
            self._add_panel(parse_panel(name.strip(), self._places(members.split(","))))
        first = find_panel(names[0]) or resolve_model(names[0])
        self.default = first.resolve().name

    def find(self, name: str | Sequence[str] | None) -> ServedModel | ServedPanel:
        """Find a model or a panel by name; a list of members makes a panel of served models."""
        if name is None or isinstance(name, str):
            found = self._panels.get(name or self.default)
            return self.get(name) if found is None else found
        models, members = [], []
        for text in name:
            model, _, sampler = text.partition(":")
            models.append(self.get(model))
            try:
                members.append(Member(model, models[-1].check_sampler(sampler or None)))
            except SpecError as error:
                raise SpecError(str(error), param="model") from error
        return ServedPanel(Panel(AD_HOC_PANEL, tuple(members)), tuple(models))

    def get(self, name: str | None) -> ServedModel:
        """Find a model by name."""
        model = self._models.get(name or self.default)
        if model is None and (name or self.default) in self._panels:
            raise InputError(
                f"{name or self.default} is a panel; name one of {', '.join(self._models)}",
                param="model",
            )
        if model is None:
            known = ", ".join([*self._models, *self._panels])
            raise NotFoundError(f"no model {name!r} is served; there is {known}", param="model")
        return model

    def all(self) -> list[ServedModel]:
        """All models, in the order in which they were named."""
        return list(self._models.values())

    def panels(self) -> list[ServedPanel]:
        """All panels."""
        return list(self._panels.values())

    def _places(self, members: Sequence[str]) -> list[str]:
        """Members with the folders of served models in place of their names."""
        found = []
        for text in members:
            name, colon, sampler = text.strip().partition(":")
            model = self._models.get(name)
            found.append(text if model is None else f"{model.folder}{colon}{sampler}")
        return found

    def _add_model(self, model: ServedModel, *, is_named: bool) -> None:
        known = self._models.get(model.name)
        is_twice = is_named and model.name in self._named
        is_other = known is not None and known.folder != model.folder
        if is_twice or is_other or model.name in self._panels:
            raise InputError(
                f"two models have the same name, {model.name}; rename a folder", param="model"
            )
        self._models[model.name] = model
        if is_named:
            self._named.add(model.name)

    def _add_panel(self, files: PanelFiles) -> None:
        for folder in files.reasoners:
            if folder not in {model.folder for model in self._models.values()}:
                self._add_model(_read(folder), is_named=False)
        by_folder = {model.folder: model for model in self._models.values()}
        models = tuple(by_folder[folder] for folder in files.reasoners)
        panel = calibrated_panel(files, [model.fingerprint for model in models])
        if panel.name in self._models or panel.name in self._panels:
            raise InputError(
                f"two models have the same name, {panel.name}; rename the panel", param="panel"
            )
        self._panels[panel.name] = ServedPanel(panel, models)

    def places(self) -> tuple[ModelPlace, ...]:
        """What a worker needs to load them."""
        return tuple(ModelPlace(each.name, each.folder, each.fingerprint) for each in self.all())


def _read(folder: Path) -> ServedModel:
    own = fingerprint(folder)
    check_base(folder)  # missing: said here, and not by a worker that can't start
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
        format=read_format(folder),
        width=width,
        fingerprint=own,
        samplers=samplers,
        calibrations=load_calibrations(folder, own),
        examples=read_examples(folder, own),
        has_verifier=find_verifier(folder, own) is not None,
    )
