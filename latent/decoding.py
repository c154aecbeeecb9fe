"""Text from lanes: reasoning (for a text reasoner), the answer prefix, the answer, end-of-text.

The answer is greedy; only a text reasoner's reasoning is ever sampled. It ends where the answer
prefix has been generated whole. Finished lanes leave the batch in blocks.
"""

from dataclasses import dataclass
from decimal import Decimal

import torch
import torch.nn.functional as F

from latent.answers import last_number, parse_answer
from latent.batch import LaneBatch
from latent.noise import Site
from latent.reasoner import Reasoner

__all__ = ["Decoded", "decode", "log_normaliser"]


@dataclass(frozen=True)
class Decoded:
    """One row's text: all generated tokens, where the answer begins, and how sure they were."""

    tokens: tuple[int, ...]
    token_logprobs: tuple[float, ...]
    answer_start: int | None  # None: the answer prefix never came
    is_finished: bool  # end-of-text was reached

    @property
    def logprob(self) -> float:
        """The mean log-probability of the answer's own tokens, through end-of-text."""
        own = self.token_logprobs[self.answer_start or 0 :]
        return sum(own) / len(own) if own else 0.0

    def read(self, reasoner: Reasoner) -> tuple[str, Decimal | None]:
        """Decode the text and read its answer.

        A strict reading has no answer without the prefix, the end, or a number.
        """
        body = list(self.tokens[:-1] if self.is_finished else self.tokens)
        text = str(reasoner.tokenizer.decode(body, skip_special_tokens=True))
        if reasoner.format.answers == "last-number":
            return text, last_number(text, reasoner.format.answer_template)
        if self.answer_start is None or not self.is_finished:
            return text, None
        answer = reasoner.tokenizer.decode(body[self.answer_start :], skip_special_tokens=True)
        return text, parse_answer(str(answer))


def decode(batch: LaneBatch, hidden: torch.Tensor, slot: int, *, keep_all: bool) -> list[Decoded]:
    """Generate from states (T, D) on; the first token goes into suffix slot `slot`.

    With `keep_all` no lane leaves and the last token is fed too, for a probe that branches off later.
    """
    reasoner, format = batch.reasoner, batch.reasoner.format
    total = len(hidden)
    prefix = torch.tensor(format.answer_prefix_ids, dtype=torch.long)
    limit = format.free_tokens + len(prefix) + format.max_answer_tokens
    tokens = torch.zeros(total, limit, dtype=torch.long)
    logprobs = torch.zeros(total, limit, dtype=torch.float64)
    lengths = torch.zeros(total, dtype=torch.long)
    starts = torch.full((total,), 0 if len(prefix) == 0 else -1)
    is_ended = torch.zeros(total, dtype=torch.bool)
    is_done = torch.zeros(total, dtype=torch.bool)
    eos = torch.tensor(format.eos_ids)
    rows = torch.arange(total)  # which of the original rows still run
    for step in range(limit):
        chosen, chosen_logprobs = _choose(batch, reasoner.logits(hidden), slot + step, starts[rows])
        going = ~is_done[rows]
        live = rows[going]
        tokens[live, step] = chosen[going]
        logprobs[live, step] = chosen_logprobs[going]
        lengths[live] = step + 1
        if len(prefix) and step + 1 >= len(prefix):
            tail = tokens[live, step + 1 - len(prefix) : step + 1]
            is_found = (tail == prefix).all(-1) & (starts[live] < 0)
            starts[live[is_found]] = step + 1
        is_ended[live] = torch.isin(chosen[going], eos)
        if step == 0 and format.ignore_first_eos:
            is_ended[:] = False
        has_room = torch.where(
            starts[live] < 0,
            step + 1 < format.free_tokens + len(prefix),
            step + 1 - starts[live] < format.max_answer_tokens,
        )
        is_done[live] = is_ended[live] | ~has_room
        is_over = bool(is_done.all())
        if is_over and not keep_all:
            break
        survivors = None if keep_all else batch.drop_finished(is_done[rows])
        if survivors is not None:
            rows, chosen = rows[survivors], chosen[survivors]
        masks = None if format.is_latent else batch.masks(slot + step, starts[rows] < 0)
        hidden = reasoner.step(reasoner.embed(chosen), batch.cache, slot + step, masks)
        if is_over:
            break
    return [
        Decoded(
            tokens=tuple(tokens[row, : lengths[row]].tolist()),
            token_logprobs=tuple(logprobs[row, : lengths[row]].tolist()),
            answer_start=int(starts[row]) if starts[row] >= 0 else None,
            is_finished=bool(is_ended[row]),
        )
        for row in range(total)
    ]


def _choose(
    batch: LaneBatch, logits: torch.Tensor, step: int, starts: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Pick each row's token, greedily or at the sampler's temperature, and its log-probability."""
    chosen = logits.argmax(-1)
    temperature = batch.sampler.temperature
    if temperature > 0.0:
        drawn = batch.noise.uniform(step, Site.TOKEN, 1)[:, 0].to(logits.device)  # (T, 1)
        cumulative = (logits.double() / temperature).softmax(-1).cumsum(-1)
        sampled = (cumulative < drawn * cumulative[:, -1:]).sum(-1).clamp(max=logits.shape[-1] - 1)
        is_reasoning = (batch.is_sampled & (starts < 0)).to(logits.device)
        chosen = torch.where(is_reasoning, sampled, chosen)
    picked = logits.gather(-1, chosen[:, None])[:, 0] - log_normaliser(logits)
    return chosen.cpu(), picked.double().cpu()


def log_normaliser(logits: torch.Tensor) -> torch.Tensor:
    """Logsumexp over the vocabulary: (T, V) → (T,).

    An odd V is padded: the loop over all T × V numbers rounds differently in its last, incomplete
    vector, which a whole block of rows (see `lanes.row_block`) has only if V is odd.
    """
    if logits.shape[-1] % 2:
        logits = F.pad(logits, (0, 1), value=float("-inf"))
    return logits.logsumexp(-1)
