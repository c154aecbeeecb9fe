"""Results that the paper reports, and the check that a reasoner is comparable with them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from latent.specs import SamplerSpec
from trainer.evaluation.summary import ModelCard

__all__ = ["PaperRow", "paper_rows"]


@dataclass(frozen=True)
class PaperRow:
    """SG, the share of questions with SG > 0.5, and JS, on the GSM8K test set at N = 32."""

    gain: float
    gain_rate: float
    js: float


@dataclass(frozen=True)
class _Backbone:
    kind: str
    thoughts: int
    width: int
    millions: tuple[float, float]  # range: tied or untied embeddings, with or without projection
    rows: Mapping[str, PaperRow]


# GTS paper, Table 2: COCONUT on GPT-2 small, K = 6.
_COCONUT = {
    "dropout:0.1": PaperRow(1.09, 0.61, 0.05),
    "dropout:0.5": PaperRow(-0.87, 0.40, 0.28),
    "gaussian:1.0": PaperRow(0.34, 0.51, 0.20),
    "gts": PaperRow(1.84, 0.82, 0.11),
}
# GTS paper, Table 2: CODI on LLaMA-3.2-1B, K = 6. (CODI on GPT-2 is not in the paper.)
_CODI = {
    "dropout:0.1": PaperRow(0.53, 0.31, 0.01),
    "dropout:0.5": PaperRow(0.47, 0.39, 0.06),
    "gaussian:1.0": PaperRow(0.11, 0.38, 0.15),
    "gts": PaperRow(1.15, 0.70, 0.10),
}
# GTS paper, Table 1: GPT-2 small that reasons in text.
_TEXT = {
    "token:1.0": PaperRow(9.94, 0.62, 0.29),
    "dropout:0.1": PaperRow(9.64, 0.58, 0.30),
    "dropout:0.5": PaperRow(3.89, 0.57, 0.67),
}
_BACKBONES = (
    _Backbone("coconut", 6, 768, (120, 170), _COCONUT),
    _Backbone("codi", 6, 2048, (1200, 1600), _CODI),
    _Backbone("cot", 0, 768, (120, 170), _TEXT),
)


def paper_rows(model: ModelCard, specs: Sequence[str], gain_budget: int) -> dict[str, PaperRow]:
    """The paper's row for each spec it has; empty unless backbone and N are those of the paper."""
    if gain_budget != 32:
        return {}
    for backbone in _BACKBONES:
        low, high = backbone.millions
        if (
            (model.kind, model.thoughts, model.width)
            == (backbone.kind, backbone.thoughts, backbone.width)
        ) and low * 1e6 <= model.parameters <= high * 1e6:
            return {spec: backbone.rows[key] for spec, key in _keys(specs) if key in backbone.rows}
    return {}


def _keys(specs: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each spec with its name in the paper's table; of several GTS only the first one."""
    learned = [spec for spec in specs if SamplerSpec.parse(spec).kind == "gts"]
    for spec in specs:
        if spec not in learned[1:]:
            yield spec, "gts" if spec in learned else str(SamplerSpec.parse(spec))
