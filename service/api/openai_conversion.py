"""Between OpenAI's bodies and those of /solve: questions and options in, choices and chunks out."""

import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from latent.errors import InputError
from latent.specs import SamplerSpec
from service.api.model_ids import ModelId
from service.api.openai_schemas import (
    AnswerMessage,
    ChatChoice,
    ChatCompletion,
    ChatLogprobs,
    ChatRequest,
    CompletionRequest,
    FinishReason,
    Message,
    OpenAIUsage,
    TextChoice,
    TextCompletion,
    TextLogprobs,
    TokenLogprob,
)
from service.api.schemas import (
    CandidateOut,
    RoundEvent,
    SolveFields,
    SolveManyResponse,
    SolveRequest,
    SolveResponse,
    Stop,
    TokenOut,
)
from service.api.streaming import HEARTBEAT, Progress
from service.errors import ServiceError
from service.models import ServedModel, ServedPanel

__all__ = ["Completion", "question_of", "solve_request"]

_DONE = "data: [DONE]\n\n"


def question_of(messages: Sequence[Message]) -> str:
    """The text of the last user message; what a reasoner has no place for is refused."""
    question = None
    for number, message in enumerate(messages):
        where, content = f"messages.{number}", message.content
        if message.role in ("tool", "function"):
            raise InputError(f"{where}: a reasoner calls no tools", param="messages")
        parts = [] if content is None or isinstance(content, str) else content
        for part in parts:
            if part.type != "text" or part.text is None:
                raise InputError(f"{where}: only text is read, not {part.type}", param="messages")
        text = content if isinstance(content, str) else "\n".join(p.text or "" for p in parts)
        if message.role in ("system", "developer") and text.strip():
            raise InputError(
                f"{where}: a reasoner reads one question and has no place for a {message.role} "
                "prompt; leave it out",
                param="messages",
            )
        if message.role == "user":
            question = text
    if question is None:
        raise InputError("messages: none is from the user", param="messages")
    return question


def solve_request(
    body: ChatRequest | CompletionRequest, question: str, model_id: ModelId
) -> SolveRequest:
    """The request to /solve that a body stands for; its own fields go before those of the model's id."""
    fields = {name: getattr(body, name) for name in SolveFields.model_fields}
    best_of = body.best_of if isinstance(body, CompletionRequest) else None
    if body.wants_logprobs or body.token_limit is not None:
        fields["include"] = list({*body.include, "tokens"})
    fields["sampler"] = _sampler_at(
        body.temperature, body.sampler or model_id.sampler, model_id.model
    )
    fields["budget"] = body.budget or best_of or model_id.budget
    return SolveRequest(
        question=question,
        model=model_id.model.name,
        stop=body.stop if isinstance(body.stop, Stop) else None,
        stream=bool(body.stream),
        **fields,
    )


def _sampler_at(
    temperature: float | None, sampler: str | None, model: ServedModel | ServedPanel
) -> str | None:
    """The sampler that a temperature stands for; a temperature of 1 leaves the model's own."""
    if temperature is None or temperature == 1:
        return sampler
    if sampler is not None:
        raise InputError(
            f"temperature: the sampler {sampler} has its own scale; leave one of the two out",
            param="temperature",
        )
    own = None if isinstance(model, ServedPanel) else model.default_sampler
    if own is None:
        raise InputError(
            f"temperature: {model.name} has no sampler of its own to scale; leave it out",
            param="temperature",
        )
    if temperature == 0:
        return "deterministic"
    return str(SamplerSpec.parse(own).at_temperature(temperature))


@dataclass(frozen=True)
class _Choice:
    index: int
    text: str | None
    tokens: list[TokenOut] | None
    finish_reason: FinishReason

    def chat(self) -> ChatChoice:
        return ChatChoice(
            index=self.index,
            message=AnswerMessage(content=self.text),
            logprobs=self.chat_logprobs(),
            finish_reason=self.finish_reason,
        )

    def chat_logprobs(self) -> ChatLogprobs | None:
        if self.tokens is None:
            return None
        return ChatLogprobs(
            content=[
                TokenLogprob(
                    token=each.token,
                    logprob=each.logprob,
                    # A token that is a part of a character is decoded to this.
                    bytes=None if "\ufffd" in each.token else list(each.token.encode()),
                )
                for each in self.tokens
            ]
        )

    def plain(self) -> TextChoice:
        logprobs = None
        if self.tokens is not None:
            tokens = [each.token for each in self.tokens]
            logprobs = TextLogprobs(
                tokens=tokens,
                token_logprobs=[each.logprob for each in self.tokens],
                text_offset=[len("".join(tokens[:place])) for place in range(len(tokens))],
            )
        return TextChoice(
            index=self.index,
            text=self.text or "",
            logprobs=logprobs,
            finish_reason=self.finish_reason,
        )


class Completion:
    """One OpenAI request: its body and id, and how the answers of /solve become its response."""

    def __init__(
        self, body: ChatRequest | CompletionRequest, model_id: ModelId, request_id: str
    ) -> None:
        self._body = body
        self._is_chat = isinstance(body, ChatRequest)
        self._common = {
            "id": f"{'chatcmpl' if self._is_chat else 'cmpl'}-{request_id}",
            "created": int(time.time()),
            "model": body.model or model_id.model.name,
            "system_fingerprint": model_id.model.fingerprint,
        }

    def response(self, solved: Sequence[SolveResponse]) -> ChatCompletion | TextCompletion:
        """The response to all questions."""
        n = self._body.n or 1
        choices = [
            choice for place, each in enumerate(solved) for choice in self._choices(each, place * n)
        ]
        shown = [self._shown(each) for each in solved]
        common: dict[str, Any] = {**self._common, "usage": _usage(solved)}
        if self._is_chat:
            return ChatCompletion(choices=[each.chat() for each in choices], gts=shown[0], **common)
        gts = shown[0] if len(shown) == 1 else SolveManyResponse(results=[*shown])
        return TextCompletion(choices=[each.plain() for each in choices], gts=gts, **common)

    async def chunks(self, steps: AsyncGenerator[Progress]) -> AsyncIterator[str]:
        """The server-sent events of a stream: progress, the choices once they are settled, [DONE]."""
        if self._is_chat:
            yield self._chunk([{"index": 0, "delta": {"role": "assistant", "content": ""}}])
        async with aclosing(steps):
            async for step in steps:
                match step:
                    case None:
                        yield HEARTBEAT
                    case RoundEvent():
                        empty: dict[str, Any] = {"delta": {}} if self._is_chat else {"text": ""}
                        yield self._chunk([{"index": 0, **empty}], gts=step.model_dump(mode="json"))
                    case SolveResponse():
                        for chunk in self._last_chunks(step):
                            yield chunk
                    case ServiceError():
                        yield f"data: {json.dumps(self.named(step).body())}\n\n"
        yield _DONE

    def named(self, error: ServiceError) -> ServiceError:
        """The error of /solve, with the name that the question has here."""
        if error.param == "question":
            error.param = "messages" if self._is_chat else "prompt"
        return error

    def _last_chunks(self, solved: SolveResponse) -> list[str]:
        chunks, choices = [], self._choices(solved, 0)
        for each in choices:
            if self._is_chat:
                logprobs = each.chat_logprobs()
                delta = {"role": "assistant", "content": each.text}
                dumped = None if logprobs is None else logprobs.model_dump(mode="json")
                chunks.append(
                    self._chunk([{"index": each.index, "delta": delta, "logprobs": dumped}])
                )
            else:
                settled = each.plain().model_dump(mode="json")
                chunks.append(self._chunk([{**settled, "finish_reason": None}]))
        ends: list[dict[str, Any]] = [
            {
                "index": each.index,
                **({"delta": {}} if self._is_chat else {"text": ""}),
                "finish_reason": each.finish_reason,
            }
            for each in choices
        ]
        chunks.append(self._chunk(ends, gts=self._shown(solved).model_dump(mode="json")))
        options = self._body.stream_options
        if options is not None and options.include_usage:
            chunks.append(self._chunk([], usage=_usage([solved]).model_dump()))
        return chunks

    def _chunk(self, choices: list[dict[str, Any]], **more: Any) -> str:
        kind = "chat.completion.chunk" if self._is_chat else "text_completion"
        full = [{"logprobs": None, "finish_reason": None, **choice} for choice in choices]
        chunk = {**self._common, "object": kind, "choices": full, **more}
        return f"data: {json.dumps(chunk)}\n\n"

    def _choices(self, solved: SolveResponse, first: int) -> list[_Choice]:
        """The n best candidates; those that could not be read are one only if there are no others."""
        found = [each for each in solved.candidates if each.answer is not None]
        return [
            self._choice(candidate, solved, first + place)
            for place, candidate in enumerate((found or solved.candidates)[: self._body.n or 1])
        ]

    def _choice(self, candidate: CandidateOut, solved: SolveResponse, index: int) -> _Choice:
        text, tokens, limit = candidate.answer, None, self._body.token_limit
        if solved.stop_reason == "abstained":
            text = None
        own = [each for each in solved.trajectories or () if each.index in candidate.trajectories]
        if own:
            tokens = max(own, key=lambda each: each.confidence).tokens
        if limit is not None and tokens is not None and len(tokens) > limit:
            kept = tokens[:limit] if self._body.wants_logprobs else None
            return _Choice(index, "", kept, "length")
        if text is not None and self._body.stop is not None:
            text = _cut(text, self._body.stop)
        return _Choice(index, text, tokens if self._body.wants_logprobs else None, "stop")

    def _shown(self, solved: SolveResponse) -> SolveResponse:
        """The response of /solve without trajectories that only the choices needed."""
        if self._body.wants_trajectories:
            return solved
        return solved.model_copy(update={"trajectories": None})


def _cut(text: str, stop: Stop | str | list[str]) -> str:
    """Cut an answer off before the first of the stop texts."""
    texts = [] if isinstance(stop, Stop) else [stop] if isinstance(stop, str) else stop
    return min((text.partition(each)[0] for each in texts), key=len, default=text)


def _usage(solved: Sequence[SolveResponse]) -> OpenAIUsage:
    prompt = sum(each.usage.prompt_tokens for each in solved)
    completion = sum(each.usage.answer_tokens for each in solved)
    return OpenAIUsage(
        prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion
    )
