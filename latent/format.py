"""`reasoner.json`: how a folder's decoder thinks. COCONUT and CODI differ only in what stands here."""

from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, get_args

from latent.errors import FormatError, SpecError
from latent.specs import SamplerSpec

__all__ = ["PromptFormat", "ReasonerFormat", "ReasonerKind"]

ReasonerKind = Literal["coconut", "codi", "cot"]
FORMAT_VERSION = 1
# Where a folder came from and what protects it, which change nothing that is computed.
_NOT_COMPUTED = frozenset({"provenance", "weights_sha256"})


@dataclass(frozen=True)
class PromptFormat:
    """Question → prompt ids: prefix_ids, then the tokens of the trimmed question and `suffix`."""

    prefix_ids: tuple[int, ...] = ()
    strip: bool = True
    collapse_spaces: bool = False
    suffix: str = ""


@dataclass(frozen=True)
class Projection:
    """CODI's feedback: Linear(D, hidden) → GELU → Linear(hidden, D) → LayerNorm."""

    hidden: int
    layer_norm_eps: float = 1e-5


@dataclass(frozen=True)
class ReasonerFormat:
    """Everything about a reasoner that its decoder and tokenizer do not say."""

    kind: ReasonerKind
    thoughts: int
    prompt: PromptFormat
    answer_template: str  # "### {}": how a target is written; the prefix below is its common tokens
    answer_prefix_ids: tuple[int, ...]
    eos_ids: tuple[int, ...]
    start_id: int | None = None
    end_id: int | None = None
    max_answer_tokens: int = 16
    max_reasoning_tokens: int = 0
    projection: Projection | None = None
    weights_sha256: str | None = None  # of the folder it stands in; filled in when that is saved
    provenance: dict[str, Any] = field(default_factory=dict)
    format: int = FORMAT_VERSION

    def __post_init__(self) -> None:
        problem = self._problem()
        if problem:
            raise FormatError(f"reasoner.json: {problem}")

    def _problem(self) -> str | None:
        is_text = self.kind == "cot"
        checks = (
            (self.format != FORMAT_VERSION, f"format {self.format} is not {FORMAT_VERSION}"),
            (
                self.kind not in get_args(ReasonerKind),
                f"kind {self.kind!r} is not coconut, codi, cot",
            ),
            (self.thoughts < 0, "thoughts must not be negative"),
            (is_text and self.thoughts > 0, "a cot reasoner has no thoughts"),
            (is_text and not self.answer_prefix_ids, "a cot reasoner needs answer_prefix_ids"),
            (
                is_text and self.max_reasoning_tokens < 1,
                "a cot reasoner needs max_reasoning_tokens",
            ),
            (not is_text and None in (self.start_id, self.end_id), "start_id or end_id is missing"),
            (
                (self.kind == "codi") != (self.projection is not None),
                "codi, and only codi, projects",
            ),
            (not self.eos_ids, "eos_ids is empty"),
            (self.max_answer_tokens < 1, "max_answer_tokens must be at least 1"),
            (self.answer_template.count("{}") != 1, "answer_template needs one {}"),
        )
        return next((text for is_wrong, text in checks if is_wrong), None)

    @property
    def is_latent(self) -> bool:
        """Whether it thinks in hidden states rather than text."""
        return self.kind != "cot"

    @property
    def default_sampler(self) -> str:
        """What explores when nobody says how."""
        return "gts" if self.is_latent else "token"

    @property
    def free_tokens(self) -> int:
        """How many tokens may come before the answer prefix."""
        return max(self.max_reasoning_tokens, self.max_answer_tokens)

    @property
    def suffix_capacity(self) -> int:
        """How many positions a trajectory may take after its prompt."""
        latent = self.thoughts + 1 if self.is_latent else 0
        # Twice the prefix: a probe forces it behind a text that ran to its limit without one.
        return latent + self.free_tokens + 2 * len(self.answer_prefix_ids) + self.max_answer_tokens

    def check_sampler(self, spec: SamplerSpec, name: str) -> None:
        """Refuse a sampler that this kind of reasoner, called `name`, can't run."""
        if spec.kind == "token" and self.is_latent:
            raise SpecError(
                f"sampler 'token' samples reasoning text, and {name} thinks in hidden states; "
                "use gts, gaussian, dropout or deterministic",
                param="sampler",
            )
        if spec.kind in ("gaussian", "gts") and not self.is_latent:
            raise SpecError(
                f"sampler {spec.kind!r} perturbs thoughts, and {name} reasons in text; "
                "use token, dropout or deterministic",
                param="sampler",
            )
        if "projection" in (spec.sites or ()) and self.projection is None:
            raise SpecError(f"{name} has no projection to drop in", param="sampler")

    def to_json(self) -> dict[str, Any]:
        """Give what `reasoner.json` holds."""
        return asdict(self)

    def computed(self) -> dict[str, Any]:
        """Give the fields that change computation, for the fingerprint."""
        return {name: value for name, value in asdict(self).items() if name not in _NOT_COMPUTED}

    @classmethod
    def from_json(cls, data: Any) -> "ReasonerFormat":
        """Read `reasoner.json`, naming every field that is missing, unknown or of a wrong kind."""
        values = _fields_of(cls, data, "reasoner.json")
        for name in ("answer_prefix_ids", "eos_ids"):
            values[name] = _ids(values.get(name), name)
        prompt = _fields_of(PromptFormat, values["prompt"], "reasoner.json: prompt")
        prompt["prefix_ids"] = _ids(prompt.get("prefix_ids", []), "prompt.prefix_ids")
        values["prompt"] = PromptFormat(**prompt)
        if values.get("projection") is not None:
            projection = _fields_of(Projection, values["projection"], "reasoner.json: projection")
            values["projection"] = Projection(**projection)
        return cls(**values)


# What the plain fields may hold; lists of ids and nested objects are read by their own code.
_PLAIN: dict[str, tuple[type, ...]] = {
    str(int): (int,),
    str(str): (str,),
    str(bool): (bool,),
    str(float): (float, int),
    str(int | None): (int, type(None)),
    str(str | None): (str, type(None)),
    str(dict[str, Any]): (dict,),
}


def _fields_of(cls: type[Any], data: Any, where: str) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise FormatError(f"{where}: expected an object, found {type(data).__name__}")
    known = {item.name: item for item in fields(cls)}
    unknown = sorted(set(data) - set(known))
    required = {name for name, item in known.items() if item.default is item.default_factory}
    missing = sorted(required - set(data))
    if unknown or missing:
        what = [f"unknown {', '.join(unknown)}"] if unknown else []
        what += [f"missing {', '.join(missing)}"] if missing else []
        raise FormatError(f"{where}: {'; '.join(what)}")
    for name, value in data.items():
        wanted = _PLAIN.get(str(known[name].type))
        if wanted is not None and type(value) not in wanted:
            raise FormatError(f"{where}: {name} has the wrong type, {type(value).__name__}")
    return dict(data)


def _ids(value: Any, name: str) -> tuple[int, ...]:
    if not isinstance(value, list | tuple) or not all(type(item) is int for item in value):
        raise FormatError(f"reasoner.json: {name} must be a list of token ids")
    return tuple(value)
