"""Settings of a run: frozen dataclasses whose fields carry their constraints and one-line descriptions.

    lr: Annotated[float, Gt(0), Doc("Peak learning rate.")] = 1e-4

Pydantic validates them. It is imported when the first settings are made, not with this module: the
command line reads the descriptions at every start.
"""

import dataclasses
import json
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, get_type_hints

from typing_extensions import Doc

from latent.errors import InputError

if TYPE_CHECKING:
    from pydantic import BaseModel

__all__ = ["Setting", "Settings", "descriptions"]


class Setting(NamedTuple):
    """One setting, as `--help` and the documentation list it."""

    name: str
    value: Any
    description: str


@dataclasses.dataclass(frozen=True)
class Settings:
    """Base of all settings: types, constraints and relations are checked when an object is made."""

    EXCLUSIVE: ClassVar[tuple[str, ...]] = ()  # fields of which `changed` sets all but one to None

    def __post_init__(self) -> None:
        from pydantic import ValidationError

        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        kind: Any = type(self)  # Any: mypy takes a dataclass type for unhashable
        try:
            _model(kind).model_validate(values)
        except ValidationError as invalid:
            error = invalid.errors(include_url=False)[0]
            name, value = str(error["loc"][0]), error["input"]
            message = error["msg"].replace("Input should be", "must be", 1)
            raise InputError(f"{name} {message}, got {value!r}", param=name) from None
        for name, is_met, wanted in self.relations():
            if not is_met:
                raise InputError(f"{name} must be {wanted}, got {values[name]!r}", param=name)

    def relations(self) -> Sequence[tuple[str, bool, str]]:
        """Conditions between fields: (field to blame, whether it is met, what the field must be)."""
        return ()

    def to_json(self) -> dict[str, Any]:
        """Values of all fields, as config.json and checkpoints hold them."""
        return dataclasses.asdict(self)

    def rows(self) -> list[Setting]:
        """Name, value and description of every setting, in order of declaration."""
        text = descriptions(type(self))
        return [Setting(name, getattr(self, name), text[name]) for name in text]

    def changed(self, assignments: Sequence[str]) -> Self:
        """Apply `name=value` assignments; a value is JSON ("0.1", "true", "null"), else plain text."""
        values: dict[str, Any] = {}
        for assignment in assignments:
            name, equals, text = assignment.partition("=")
            if not equals or name not in descriptions(type(self)):
                known = ", ".join(descriptions(type(self)))
                raise InputError(f"{assignment!r} is not name=value with a name of: {known}")
            try:
                value = json.loads(text.lower() if text in ("True", "False") else text)
            except ValueError:
                value = text
            if name in self.EXCLUSIVE and value is not None:
                values |= dict.fromkeys(self.EXCLUSIVE)
            values[name] = value
        return dataclasses.replace(self, **values)


def descriptions(kind: type[Settings]) -> dict[str, str]:
    """Description of every field, in order of declaration."""
    hints = get_type_hints(kind, include_extras=True)
    found = {}
    for field in dataclasses.fields(kind):
        marks = getattr(hints[field.name], "__metadata__", ())
        found[field.name] = next((m.documentation for m in marks if isinstance(m, Doc)), "")
    return found


@cache
def _model(kind: type) -> "type[BaseModel]":
    from pydantic import ConfigDict, create_model

    hints = get_type_hints(kind, include_extras=True)
    fields: Any = {field.name: (hints[field.name], ...) for field in dataclasses.fields(kind)}
    return create_model(
        kind.__name__, __config__=ConfigDict(strict=True, allow_inf_nan=False), **fields
    )
