"""Model ids that hold a sampler and a budget, `NAME@SAMPLER:BUDGET`: reads and lists them."""

from collections.abc import Iterator
from dataclasses import dataclass

from latent.errors import NotFoundError, SpecError
from service.api.model_schemas import VariantOut
from service.models import Catalog, ServedModel, ServedPanel
from service.settings import Settings

__all__ = ["ModelId", "resolve_model_id", "variants"]

_LISTED_BUDGETS = (8, 64)


@dataclass(frozen=True)
class ModelId:
    """A served model, and what its id says of the sampler and the budget; None where it does not."""

    model: ServedModel | ServedPanel
    sampler: str | None = None
    budget: int | None = None

    def out(self) -> VariantOut:
        """Describe a variant for /v1/models."""
        assert self.sampler is not None
        assert self.budget is not None
        return VariantOut(
            id=f"{self.model.name}@{self.sampler}:{self.budget}",
            parent=self.model.name,
            sampler=self.sampler,
            budget=self.budget,
        )


def resolve_model_id(text: str | None, catalog: Catalog, settings: Settings) -> ModelId:
    """Find the model of an id; None is the default. The last `:NUMBER` of a variant is its budget."""
    panels = [panel.name for panel in catalog.panels()]
    names = [model.name for model in catalog.all()]
    if text is None or text in (*names, *panels):
        return ModelId(catalog.find(text))
    # A name may hold an @ too, and so may a spec (dropout:0.1@residual).
    name = max((name for name in names if text.startswith(f"{name}@")), key=len, default=None)
    if name is None:
        raise NotFoundError(
            f"no model {text!r} is served; there is {', '.join((*panels, *names))}, all but panels also "
            f"as NAME@SAMPLER:BUDGET, such as {next(variants(catalog.all()[0], settings)).id}",
            param="model",
        )
    model = catalog.get(name)
    spec, _, budget = text.removeprefix(f"{name}@").rpartition(":")
    if not (budget.isascii() and budget.isdigit() and 1 <= int(budget[:9]) <= settings.max_budget):
        raise NotFoundError(
            f"no model {text!r}: NAME@SAMPLER:BUDGET ends with a budget, 1 to {settings.max_budget}",
            param="model",
        )
    try:
        return ModelId(model, str(model.check_sampler(spec)), int(budget))
    except SpecError as error:
        raise NotFoundError(f"no model {text!r}: {error}", param="model") from error


def variants(model: ServedModel, settings: Settings) -> Iterator[VariantOut]:
    """The variants that are listed: the default sampler and one of every other, at usual budgets."""
    budgets = sorted({min(budget, settings.max_budget) for budget in _LISTED_BUDGETS})
    own = [] if model.default_sampler is None else [model.default_sampler]
    for spec in dict.fromkeys([*own, *model.default_samplers()]):
        for budget in budgets:
            yield ModelId(model, spec, budget).out()
