"""Text from lanes: reasoning (for a text reasoner), the answer prefix, the answer, end-of-text.

The answer is greedy; only a text reasoner's reasoning is ever sampled, and the results of its
equations may be computed (calculator.py). It ends where the answer prefix has been generated whole.
Finished lanes leave the batch in blocks.
"""

from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import torch
import torch.nn.functional as F

from latent.answers import last_number, parse_answer
from latent.batch import LaneBatch
from latent.calculator import Registers
from latent.format import ReasonerFormat
from latent.lanes import row_block, to_device
from latent.noise import Site
from latent.reasoner import Reasoner
from latent.trajectory import IMPOSSIBLE

__all__ = ["Decoded", "Texts", "decode", "feed", "log_normaliser", "next_tokens", "read_text"]


# Tokens between two looks at which lanes have finished. A look is a wait for a GPU; on a CPU it is
# free, and lanes that leave at once save their share of the next token.
_LOOK_EVERY = {"cpu": 1}
_LOOK_EVERY_ELSEWHERE = 4

_LOGITS_AT_A_TIME = 2**22  # 16 MiB in fp32

_TOKEN_BLOCK = 128  # tokens whose probabilities are summed together when one is drawn


@dataclass(frozen=True)
class Decoded:
    """One row's text: all generated tokens, where the answer begins, and how sure they were."""

    tokens: tuple[int, ...]
    token_logprobs: tuple[float, ...]
    answer_start: int | None  # None: the answer prefix never came
    is_finished: bool  # end-of-text was reached
    logprob: float  # mean of the answer's own tokens, through end-of-text
    chain_logprob: float  # of the tokens before the answer that no calculator wrote


def read_text(
    reasoner: Reasoner, tokens: tuple[int, ...], answer_start: int | None, is_finished: bool
) -> tuple[str, Decimal | None]:
    """Turn a row's tokens into text and read its answer.

    A strict reading has no answer without the prefix, the end, or a number.
    """
    body = list(tokens[:-1] if is_finished else tokens)
    text = str(reasoner.tokenizer.decode(body, skip_special_tokens=True))
    if reasoner.format.answers == "last-number":
        return text, last_number(text, reasoner.format.answer_template)
    if answer_start is None or not is_finished:
        return text, None
    answer = reasoner.tokenizer.decode(body[answer_start:], skip_special_tokens=True)
    return text, parse_answer(str(answer))


class Texts:
    """What T rows have written so far, as tensors where the lanes are."""

    def __init__(self, format: ReasonerFormat, total: int, device: torch.device) -> None:
        self._format = format
        self._prefix = to_device(torch.tensor(format.answer_prefix_ids, dtype=torch.long), device)
        self._eos = to_device(torch.tensor(format.eos_ids), device)
        self.limit = format.free_tokens + len(self._prefix) + format.max_answer_tokens
        self.tokens = torch.zeros(total, self.limit, dtype=torch.long, device=device)
        self.logprobs = torch.zeros(total, self.limit, dtype=torch.float64, device=device)
        self.chain_logprobs = torch.zeros(total, dtype=torch.float64, device=device)
        self.lengths = torch.zeros(total, dtype=torch.long, device=device)
        start = -1 if len(self._prefix) else 0
        self._starts = torch.full((total,), start, device=device)  # of the answer; −1: not yet
        self._is_ended = torch.zeros(total, dtype=torch.bool, device=device)
        self._is_done = torch.zeros(total, dtype=torch.bool, device=device)
        self.rows = torch.arange(total, device=device)  # (n,) those that still run
        is_calculated = format.calculator and not format.is_latent  # of thoughts: see thinking.py
        self.equations = Registers.idle(total, device) if is_calculated else None

    @property
    def starts(self) -> torch.Tensor:
        """Where the answers of the running rows begin; −1: not yet. (n,)."""
        return self._starts[self.rows]

    @property
    def is_done(self) -> torch.Tensor:
        """Which running rows have their whole text: (n,)."""
        return self._is_done[self.rows]

    def add(
        self, step: int, chosen: torch.Tensor, logprobs: torch.Tensor, is_computed: torch.Tensor
    ) -> None:
        """Append a token to the running rows that are not done, (n,) each.

        `is_computed`: which tokens a calculator wrote.
        """
        rows, format, prefix = self.rows, self._format, self._prefix
        starts, is_going = self.starts, ~self.is_done
        is_own = is_going & (starts < 0) & ~is_computed
        self.chain_logprobs[rows] += torch.where(is_own, logprobs, 0.0)
        self.tokens[rows, step] = torch.where(is_going, chosen, 0)
        self.logprobs[rows, step] = torch.where(is_going, logprobs, 0.0)
        self.lengths[rows] += is_going
        if len(prefix) and step + 1 >= len(prefix):
            tail = self.tokens[rows, step + 1 - len(prefix) : step + 1]
            is_found = (tail == prefix).all(-1) & (starts < 0) & is_going
            starts = torch.where(is_found, step + 1, starts)
            self._starts[rows] = starts
        is_ended = (chosen[:, None] == self._eos).any(-1)
        if step == 0 and format.ignore_first_eos:
            is_ended = torch.zeros_like(is_ended)
        self._is_ended[rows] = torch.where(is_going, is_ended, self._is_ended[rows])
        is_full = torch.where(
            starts < 0,
            step + 1 >= format.free_tokens + len(prefix),
            step + 1 - starts >= format.max_answer_tokens,
        )
        self._is_done[rows] = ~is_going | is_ended | is_full

    def read(self) -> list[Decoded]:
        """Bring everything to the host in one transfer."""
        flags = torch.stack((self.lengths, self._starts, self._is_ended.long()), dim=1)
        chains = self.chain_logprobs[:, None]
        numbers = torch.cat((flags.double(), chains, self.tokens.double(), self.logprobs), dim=1)
        host = numbers.cpu().numpy()  # exact: token ids and lengths are below 2⁵³
        lengths, starts, ended = host[:, :3].astype(np.int64).T
        tokens = host[:, 4 : 4 + self.limit].astype(np.int64)
        logprobs = host[:, 4 + self.limit :]
        column = np.arange(self.limit)
        firsts = np.maximum(starts, 0)
        is_own = (column >= firsts[:, None]) & (column < lengths[:, None])
        sums = np.where(is_own, logprobs, 0.0).cumsum(1)[:, -1]
        means = sums / np.maximum(lengths - firsts, 1)
        return [
            Decoded(
                tuple(ids[:n]),
                tuple(each[:n]),
                start if start >= 0 else None,
                bool(end),
                mean,
                chain,
            )
            for ids, each, n, start, end, mean, chain in zip(
                tokens.tolist(),
                logprobs.tolist(),
                lengths.tolist(),
                starts.tolist(),
                ended.tolist(),
                means.tolist(),
                host[:, 3].tolist(),
                strict=True,
            )
        ]


def decode(
    batch: LaneBatch,
    hidden: torch.Tensor,
    slot: int,
    *,
    keep_all: bool,
    states: torch.Tensor | None = None,
) -> list[Decoded]:
    """Generate from states (T, D) on; the first token goes into suffix slot `slot`.

    With `keep_all` no lane leaves and the last token is fed too, for a probe that branches off later.
    `states` (T, A, D) are filled with those that each row's first A tokens are chosen from.
    """
    texts = Texts(batch.reasoner.format, len(hidden), hidden.device)
    look_every = _LOOK_EVERY.get(hidden.device.type, _LOOK_EVERY_ELSEWHERE)
    for step in range(texts.limit):
        if states is not None and step < states.shape[1]:
            states[texts.rows, step] = hidden.where(~texts.is_done[:, None], 0.0)
        chosen = next_tokens(batch, texts, hidden, slot, step)
        is_over = step + 1 == texts.limit
        if (step + 1) % look_every == 0:
            is_done = texts.is_done.tolist()  # waits for the device
            is_over |= all(is_done)
            survivors = None if keep_all or is_over else batch.drop_finished(is_done)
            if survivors is not None:
                texts.rows, chosen = texts.rows[survivors], chosen[survivors]
        if is_over and not keep_all:
            break
        hidden = feed(batch, texts, chosen, slot + step)
        if is_over:
            break
    return texts.read()


def next_tokens(
    batch: LaneBatch, texts: Texts, hidden: torch.Tensor, slot: int, step: int
) -> torch.Tensor:
    """Choose and write down the token of every running row: (n, D) → (n,)."""
    size = _rows_at_a_time(hidden, batch.reasoner.vocabulary_size)
    drawn = None
    if batch.sampler.temperature > 0.0:
        drawn = batch.noise.uniform(slot + step, Site.TOKEN, 1)[:, 0]  # (n, 1)
    pieces = [
        _next_of(batch, texts, hidden, drawn, slice(first, first + size))
        for first in range(0, len(hidden), size)
    ]
    chosen, logprobs, is_computed = (torch.cat(each) for each in zip(*pieces, strict=True))
    texts.add(step, chosen, logprobs, is_computed)
    return chosen


def _rows_at_a_time(hidden: torch.Tensor, vocabulary_size: int) -> int:
    """Rows of the states (n, D) whose logits are computed together: on a CPU whole blocks of a few.

    The logits of hundreds of rows would not fit into its caches, and the C library returns memory of
    that size to the system, to take it again at the next step.
    """
    if hidden.device.type != "cpu":
        return len(hidden)
    block = row_block(hidden.device)
    return max(_LOGITS_AT_A_TIME // (vocabulary_size * block), 1) * block


def _next_of(
    batch: LaneBatch, texts: Texts, hidden: torch.Tensor, drawn: torch.Tensor | None, piece: slice
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Tokens of a piece of the running rows, their log-probabilities, which are computed: (n,)."""
    rows = texts.rows[piece]
    logits = batch.reasoner.logits(hidden[piece])
    is_reasoning = texts.starts[piece] < 0
    chosen = logits.argmax(-1)
    if drawn is not None:
        # Below the largest one, so that a low temperature overflows nothing and little is rounded.
        scaled = (logits - logits.amax(-1, keepdim=True)).div_(batch.sampler.temperature)
        sampled = _sample(scaled.softmax(-1), drawn[piece])
        chosen = torch.where(batch.is_sampled[piece] & is_reasoning, sampled, chosen)
    is_computed = torch.zeros_like(is_reasoning)
    if texts.equations is not None:
        # The results of equations, in place of the tokens that were chosen there.
        calculator, state = batch.reasoner.calculator, texts.equations[rows]
        is_computed, _ = calculator.due(state)
        chosen = torch.where(is_reasoning, calculator.correct(state, chosen), chosen)
        texts.equations[rows] = calculator.read(state, chosen)
    picked = logits.gather(-1, chosen[:, None])[:, 0] - log_normaliser(logits)
    # The logarithm of a sum may be rounded to just below its largest term, and a lane whose state has
    # overflowed has no distribution at all: what it writes gets a probability of 0.
    likely = picked.double().clamp(max=0.0).nan_to_num(nan=IMPOSSIBLE, neginf=IMPOSSIBLE)
    return chosen, likely, is_computed


def feed(batch: LaneBatch, texts: Texts, chosen: torch.Tensor, slot: int) -> torch.Tensor:
    """Run tokens (n,) through the decoder; a text reasoner's sampled lanes drop until they answer."""
    reasoner = batch.reasoner
    masks = None if reasoner.format.is_latent else batch.masks(slot, texts.starts < 0)
    return reasoner.step(reasoner.embed(chosen), batch.cache, slot, masks)


def _sample(probabilities: torch.Tensor, drawn: torch.Tensor) -> torch.Tensor:
    """Tokens at which the sum of probabilities (n, V) reaches the share `drawn` (n, 1) of it all: (n,).

    Sums are float64: of blocks of tokens first, and then in the one block where the token is.
    """
    n, v = probabilities.shape
    if v % _TOKEN_BLOCK:  # padding by nothing would copy
        probabilities = F.pad(probabilities, (0, -v % _TOKEN_BLOCK))
    blocks = probabilities.view(n, -1, _TOKEN_BLOCK)
    sums = blocks.sum(-1, dtype=torch.float64)
    ends = sums.cumsum(-1)  # (n, blocks)
    goal = drawn * ends[:, -1:]
    block = (ends < goal).sum(-1, keepdim=True)
    before = ends.gather(-1, block) - sums.gather(-1, block)
    own = blocks.gather(1, block[..., None].expand(-1, -1, _TOKEN_BLOCK))[:, 0].double()
    place = (before + own.cumsum(-1) < goal).sum(-1).clamp(max=_TOKEN_BLOCK - 1)
    return (block[:, 0] * _TOKEN_BLOCK + place).clamp(max=v - 1)


def log_normaliser(logits: torch.Tensor) -> torch.Tensor:
    """Logsumexp over the vocabulary: (T, V) → (T,).

    An odd V is padded: the loop over all T × V numbers rounds differently in its last, incomplete
    vector, which a whole block of rows (see `lanes.row_block`) has only if V is odd.
    """
    if logits.shape[-1] % 2:
        logits = F.pad(logits, (0, 1), value=float("-inf"))
    return logits.logsumexp(-1)
