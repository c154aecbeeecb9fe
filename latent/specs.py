"""The compact names of samplers, the same in the command line, the API and reports."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, get_args

from latent.errors import SpecError

__all__ = ["DROPOUT_SITES", "SamplerKind", "SamplerSpec"]

SamplerKind = Literal["deterministic", "dropout", "gaussian", "gts", "token"]
DROPOUT_SITES = ("embedding", "attention", "residual", "projection")

_DEFAULTS = {"dropout": 0.1, "gaussian": 1.0, "token": 1.0}
_RANGES: dict[str, tuple[Callable[[float], bool], str]] = {
    "dropout": (lambda p: 0 <= p < 1, "a probability 0 ≤ p < 1"),
    "gaussian": (lambda scale: 0 < scale <= 1000, "a scale 0 < s ≤ 1000"),
    "token": (lambda temperature: 0.01 <= temperature <= 100, "a temperature 0.01 ≤ t ≤ 100"),
}
# A name among the reasoner's own samplers, or a path, which has a slash.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*|[^\s]*/[^\s]*")
_SCALED = re.compile(r"(gts(?::.+)?)@(auto|[0-9.]+)")
_LARGEST_SCALE = 10.0
_EXAMPLES = (
    "deterministic, dropout:0.1, gaussian:1.0, gts, gts:name, gts@0.5, gts@auto or token:1.0"
)


@dataclass(frozen=True)
class SamplerSpec:
    """A sampler's kind and setting, as in `dropout:0.1`."""

    kind: SamplerKind
    # dropout: p; gaussian: scale; token: temperature; gts: what its σ is multiplied by, None is 1
    value: float | None = None
    name: str | None = None  # gts: which of the reasoner's samplers
    sites: tuple[str, ...] | None = None  # dropout: where; None is the decoder's own default
    is_auto: bool = False  # gts: its scale follows from the trajectory's index, by its card

    @classmethod
    def parse(cls, text: str) -> "SamplerSpec":
        """Read a spec; raise SpecError saying what would be right."""
        scaled = _SCALED.fullmatch(text.strip())
        if scaled is not None:
            return cls.parse(scaled[1])._scaled(text, scaled[2])
        kind, colon, setting = text.strip().partition(":")
        if kind not in get_args(SamplerKind) or (colon and not setting):
            raise SpecError(f"unknown sampler {text!r}; use {_EXAMPLES}", param="sampler")
        if kind == "deterministic":
            if setting:
                raise SpecError(f"{text!r}: deterministic takes no setting", param="sampler")
            return cls("deterministic")
        if kind == "gts":
            if setting and not _NAME.fullmatch(setting):
                raise SpecError(
                    f"{text!r}: name one of the model's samplers, or give a path with a '/'",
                    param="sampler",
                )
            return cls("gts", name=setting or None)
        return cls._with_value(text, kind, setting)

    def _scaled(self, text: str, scale: str) -> "SamplerSpec":
        if scale == "auto":
            return replace(self, is_auto=True)
        try:
            value = float(scale)
        except ValueError:
            value = float("nan")
        if not 0 < value <= _LARGEST_SCALE:  # at 0 all trajectories would be one
            raise SpecError(
                f"{text!r}: σ takes a scale 0 < s ≤ {_LARGEST_SCALE:g}, as in gts@0.5, or auto",
                param="sampler",
            )
        return replace(self, value=None if value == 1 else value)

    def at_temperature(self, temperature: float) -> "SamplerSpec":
        """The same at a temperature: of text that itself, else what its own noise is multiplied by."""
        if self.kind == "gts":
            return self.parse(f"{replace(self, is_auto=False, value=None)}@{temperature}")
        own = 1.0 if self.kind == "token" else self.value or 1.0
        return self.parse(str(replace(self, value=own * temperature)))

    @classmethod
    def _with_value(cls, text: str, kind: str, setting: str) -> "SamplerSpec":
        number, at, places = setting.partition("@")
        is_valid, wanted = _RANGES[kind]
        try:
            value = float(number) if number else _DEFAULTS[kind]
        except ValueError:
            value = float("nan")
        if not is_valid(value):
            raise SpecError(f"{text!r}: {kind} takes {wanted}, as in {kind}:0.5", param="sampler")
        if not at:
            return cls(kind, value=value)  # type: ignore[arg-type]
        sites = tuple(site for site in DROPOUT_SITES if site in places.split("+"))
        if kind != "dropout" or len(sites) != len(places.split("+")):
            raise SpecError(
                f"{text!r}: after '@' come dropout sites joined by '+', of {', '.join(DROPOUT_SITES)}",
                param="sampler",
            )
        return cls("dropout", value=value, sites=sites)

    def effective_budget(self, budget: int) -> int:
        """Trajectories to draw: 1 for `deterministic`, since copies of it would look like agreement."""
        return min(budget, 1) if self.kind == "deterministic" else budget

    def __str__(self) -> str:
        if self.kind == "gts":
            scale = "@auto" if self.is_auto else "" if self.value is None else f"@{self.value}"
            return f"gts:{self.name}{scale}" if self.name else f"gts{scale}"
        if self.value is None:
            return self.kind
        places = "@" + "+".join(self.sites) if self.sites else ""
        return f"{self.kind}:{float(self.value)}{places}"
