"""The JSON bodies of OpenAI's endpoints, in and out.

A field of OpenAI's API is used, ignored where it changes no answer there either, or refused unless it
has the value that it has when absent. The fields of /solve stand beside them.
"""

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
)

from service.api.schemas import SolveFields, SolveManyResponse, SolveResponse, Stop

__all__ = [
    "ChatCompletion",
    "ChatRequest",
    "CompletionRequest",
    "Message",
    "TextCompletion",
]

_SAMPLER = "thoughts are perturbed by a sampler: set `sampler`, and leave this at its default"
_ONE_NUMBER = "an answer is one number; leave this out"
_NO_TOOLS = "a reasoner calls no tools; leave this out"
_TEXT_ONLY = "a reasoner reads a question and writes a number, in plain text"
_CHOSEN_ONLY = "only the log-probabilities of the chosen tokens are kept"


def _refused(reason: str, *neutral: object) -> AfterValidator:
    """Let only the values pass that change nothing."""

    def check(value: object) -> object:
        # By type too: 1 == True.
        if value is not None and (type(value), value) not in [(type(x), x) for x in neutral]:
            raise ValueError(f"not supported: {reason}")
        return value

    return AfterValidator(check)


Ignored = Annotated[Any, Field(None, description="Ignored.")]
StopTexts = Annotated[list[Annotated[str, Field(min_length=1)]], Field(max_length=4)]
MaxTokens = Annotated[int | None, Field(ge=1, strict=True)]
Number = StrictFloat | None  # strict: false is no 0


class StreamOptions(BaseModel):
    """Options of a stream."""

    include_usage: bool | None = Field(
        False, strict=True, description="Send the usage in a last chunk."
    )
    include_obfuscation: Ignored = None


class _OpenAIRequest(SolveFields):
    """What both endpoints take."""

    model: str | None = Field(
        None,
        min_length=1,
        max_length=200,
        examples=["coconut-tiny", "coconut-tiny@gts:64"],
        description="An id from /v1/models, or NAME@SAMPLER:BUDGET; the fields `sampler` and `budget` "
        "go before what an id says.",
    )
    n: int | None = Field(
        None,
        ge=1,
        le=128,
        strict=True,
        description="Most choices: the candidates, the winner first; 1 when absent.",
    )
    stop: Stop | Annotated[str, Field(min_length=1)] | StopTexts | None = Field(
        None,
        description='{"certainty": 0.95} or {"confidence": 0.9} stops early, as in /solve. Texts cut '
        "an answer off.",
    )
    stream: bool | None = Field(None, strict=True)
    stream_options: StreamOptions | None = None
    max_tokens: MaxTokens = Field(
        None,
        description="A choice whose trajectory decoded more tokens has no text, and the "
        "finish_reason `length`.",
    )

    temperature: float | None = Field(
        None,
        ge=0,
        le=2,
        strict=True,
        description="1, or absent: the model's own sampler. 0: the deterministic trajectory. Another "
        "value: of a text reasoner `token` at that temperature, of a latent one its learned sampler "
        "with σ multiplied by it. Not beside a sampler.",
    )
    top_p: Annotated[Number, _refused(_SAMPLER, 1.0)] = None
    frequency_penalty: Annotated[Number, _refused(_ONE_NUMBER, 0.0)] = None
    presence_penalty: Annotated[Number, _refused(_ONE_NUMBER, 0.0)] = None
    logit_bias: Annotated[dict[str, StrictFloat] | None, _refused(_ONE_NUMBER, {})] = None
    user: Ignored = None


class Part(BaseModel):
    """A part of a message's content."""

    model_config = ConfigDict(frozen=True)

    type: str = Field(examples=["text"], description="Only `text` is read; others are refused.")
    text: str | None = None


class Message(BaseModel):
    """One message; the last one of the user is the question."""

    model_config = ConfigDict(frozen=True)

    role: Literal["user", "assistant", "system", "developer", "tool", "function"]
    content: str | list[Part] | None = None


class ChatRequest(_OpenAIRequest):
    """The body of /v1/chat/completions."""

    messages: list[Message] = Field(
        min_length=1,
        description="The last user message is the question. The turns before it are not read. A "
        "system prompt is refused: a reasoner has no place for it.",
    )
    max_completion_tokens: MaxTokens = Field(None, description="As max_tokens, and before it.")
    logprobs: bool | None = Field(
        None,
        strict=True,
        description="Add the decoded tokens of the most confident trajectory behind each choice.",
    )
    top_logprobs: Annotated[StrictInt | None, _refused(_CHOSEN_ONLY, 0)] = None

    tools: Annotated[list[Any] | None, _refused(_NO_TOOLS, [])] = None
    tool_choice: Annotated[Any, _refused(_NO_TOOLS, "none", "auto")] = None
    functions: Annotated[list[Any] | None, _refused(_NO_TOOLS, [])] = None
    function_call: Annotated[Any, _refused(_NO_TOOLS, "none", "auto")] = None
    parallel_tool_calls: Ignored = None  # there are no calls
    response_format: Annotated[dict[str, Any] | None, _refused(_TEXT_ONLY, {"type": "text"})] = None
    modalities: Annotated[list[str] | None, _refused(_TEXT_ONLY, ["text"])] = None
    audio: Annotated[Any, _refused(_TEXT_ONLY)] = None
    reasoning_effort: Annotated[
        str | None, _refused("set `budget`, the number of trajectories", "medium")
    ] = None
    web_search_options: Annotated[Any, _refused("a reasoner searches nothing")] = None
    metadata: Ignored = None
    store: Ignored = None
    service_tier: Ignored = None
    safety_identifier: Ignored = None
    prompt_cache_key: Ignored = None
    prompt_cache_retention: Ignored = None
    prediction: Ignored = None
    verbosity: Ignored = None

    @property
    def token_limit(self) -> int | None:
        """Most tokens of a choice."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def wants_logprobs(self) -> bool:
        """Whether the choices have log-probabilities."""
        return bool(self.logprobs)


class CompletionRequest(_OpenAIRequest):
    """The body of /v1/completions."""

    prompt: str | Annotated[list[str], Field(min_length=1)] = Field(
        description="A question, or several; tokens are refused."
    )
    best_of: int | None = Field(
        None, ge=1, strict=True, description="The budget, if that is absent."
    )
    logprobs: int | None = Field(
        None, ge=0, le=1, strict=True, description="0 or 1: the chosen tokens; others are not kept."
    )
    echo: Annotated[StrictBool | None, _refused("the prompt is not sent back", False)] = None
    suffix: Annotated[str | None, _refused(_ONE_NUMBER, "")] = None

    @property
    def token_limit(self) -> int | None:
        """Most tokens of a choice."""
        return self.max_tokens

    @property
    def wants_logprobs(self) -> bool:
        """Whether the choices have log-probabilities."""
        return self.logprobs is not None


class _Out(BaseModel):
    model_config = ConfigDict(frozen=True)


FinishReason = Literal["stop", "length"]


class TokenLogprob(_Out):
    """A decoded token; `bytes` is null where the token is only a part of a character."""

    token: str
    logprob: float
    bytes: list[int] | None
    top_logprobs: list[Any] = []  # always empty


class ChatLogprobs(_Out):
    """The decoded tokens of the most confident trajectory with this answer."""

    content: list[TokenLogprob]
    refusal: None = None


class AnswerMessage(_Out):
    """The answer; `content` is null if none could be read."""

    role: Literal["assistant"] = "assistant"
    content: str | None
    refusal: None = None


class ChatChoice(_Out):
    """One candidate."""

    index: int
    message: AnswerMessage
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason


class TextLogprobs(_Out):
    """The decoded tokens of the most confident trajectory with this answer."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: None = None
    text_offset: list[int] = Field(description="Where each token begins in all of them joined.")


class TextChoice(_Out):
    """One candidate; `text` is empty if no answer could be read."""

    index: int
    text: str
    logprobs: TextLogprobs | None
    finish_reason: FinishReason


class OpenAIUsage(_Out):
    """Tokens of the question and of all trajectories. Thoughts are no tokens: see `gts.usage`."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class _Completion(_Out):
    id: str
    created: int = Field(description="Seconds since 1970.")
    model: str = Field(description="The id that was asked for.")
    system_fingerprint: str = Field(description="The model's fingerprint; see /v1/models.")
    usage: OpenAIUsage


class ChatCompletion(_Completion):
    """The response of /v1/chat/completions; `gts` is that of /solve."""

    object: Literal["chat.completion"] = "chat.completion"
    choices: list[ChatChoice]
    gts: SolveResponse


class TextCompletion(_Completion):
    """The response of /v1/completions; `gts` is that of /solve, with `results` for several prompts."""

    object: Literal["text_completion"] = "text_completion"
    choices: list[TextChoice]
    gts: SolveResponse | SolveManyResponse
