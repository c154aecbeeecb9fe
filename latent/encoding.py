"""Encodes questions and answers in the format of a reasoner. Knows nothing of the decoder."""

import re
from decimal import Decimal
from functools import cached_property
from itertools import takewhile

from transformers import PreTrainedTokenizerBase

from latent.answers import format_answer
from latent.errors import InputError
from latent.format import ReasonerFormat

__all__ = ["Encoder"]


class Encoder:
    """Encodes questions and answers for one reasoner; refuses what does not fit its context window."""

    def __init__(
        self,
        format: ReasonerFormat,
        tokenizer: PreTrainedTokenizerBase,
        position_limit: int | None,
        name: str,
    ) -> None:
        self._format = format
        self._tokenizer = tokenizer
        self._position_limit = position_limit
        self._name = name

    def question(self, text: str) -> tuple[int, ...]:
        """Prompt ids of a question, up to and with <start_latent>."""
        how = self._format.prompt
        text = text.strip() if how.strip else text
        if not text.strip():
            raise InputError("question is empty; give some text", param="question")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InputError(
                f"question is not Unicode text: {error.reason}", param="question"
            ) from error
        if how.collapse_spaces:
            text = re.sub(r" {2,}", " ", text)
        if how.halve_spaces:
            text = text.replace("  ", " ")
        ids = self._ids(text + how.suffix)
        start = () if self._format.start_id is None else (self._format.start_id,)
        prompt = (*how.prefix_ids, *ids, *how.suffix_ids, *start)
        self.check_length(len(prompt))
        return prompt

    def check_length(self, tokens: int) -> None:
        """Refuse a prompt that leaves no room in the context window for thoughts and answer."""
        if self._position_limit is None:
            return
        room = self._position_limit - self._format.suffix_capacity
        if tokens > room:
            raise InputError(
                f"question is too long: {tokens} prompt tokens, and {self._name} has room for {room}; "
                "shorten it",
                param="question",
            )

    def answer(self, answer: Decimal) -> tuple[int, ...]:
        """Tokens of an answer that should follow the answer prefix, through end-of-text."""
        ids = self._ids(self._format.answer_template.format(format_answer(answer)))
        prefix = self._format.answer_prefix_ids
        if ids[: len(prefix)] != prefix:
            raise InputError(f"answer {answer} does not tokenize behind the prefix", param="answer")
        own = (*ids[len(prefix) :], self._format.eos_ids[0])
        if len(own) > self._format.max_answer_tokens:
            raise InputError(
                f"answer has {len(own)} tokens; {self._name} gives at most "
                f"{self._format.max_answer_tokens}",
                param="answer",
            )
        return own

    @cached_property
    def answer_lead_ids(self) -> tuple[int, ...]:
        """Tokens that every number begins with, and that say nothing of it, such as a single space.

        Answers below zero may begin with another token, so these are no part of the answer prefix.
        """
        try:
            numbers = [self.answer(Decimal(digit)) for digit in range(10)]
        except InputError:  # a number of one digit is too long, or does not follow the prefix
            return ()
        same = takewhile(lambda tokens: len(set(tokens)) == 1, zip(*numbers, strict=False))
        return tuple(tokens[0] for tokens in same)

    def _ids(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(text, add_special_tokens=False))
