"""Lanes against the alternatives, on GPT-2-small sizes with random weights, interleaved in one run.

    python -m benchmarks.lanes [--budgets 1,2,4,8,16,32,64,128] [--repeats 5] [--threads 1]

(a) one trajectory at a time, each with its own KV cache; (b) the prompt's KV cache repeated N times and
the N trajectories as a batch, through transformers' own sdpa decoder; (c) the bare matrix products that
any implementation must do, in fp32. All draw the same Gaussian noise, do K = 6 thoughts and decode 6
tokens. `lanes/int8` is the time in fp32 over that of the same lanes with int8 products.
"""

import argparse
import copy
import statistics
import time
from collections.abc import Callable
from unittest.mock import patch

import torch
from transformers import AutoModelForCausalLM, DynamicCache, GPT2Config

import latent.lanes
from latent.attention import ATTENTION_NAME
from latent.format import PromptFormat, ReasonerFormat
from latent.noise import LaneNoise
from latent.reasoner import Reasoner
from latent.rollout import Ask, rollout
from latent.samplers import Sampler
from latent.specs import SamplerSpec

PROMPT, THOUGHTS, ANSWER = 64, 6, 6
CONFIG = GPT2Config(vocab_size=50260)  # 12 layers, 12 heads, width 768
SINGLE_SHARE = 2  # (a) is timed on at most this many trajectories and scaled: it is linear in N


class Contest:
    """The contestants, on the same weights and the same noise."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.plain = AutoModelForCausalLM.from_config(CONFIG, attn_implementation="sdpa").eval()
        model = AutoModelForCausalLM.from_config(
            copy.deepcopy(CONFIG), attn_implementation=ATTENTION_NAME
        )
        model.load_state_dict(self.plain.state_dict())
        # No answer prefix and no end-of-text, so that every trajectory decodes exactly ANSWER tokens.
        format = ReasonerFormat(
            kind="coconut",
            thoughts=THOUGHTS,
            prompt=PromptFormat(suffix="\n"),
            answer_template="{}",
            answer_prefix_ids=(),
            eos_ids=(CONFIG.vocab_size,),
            start_id=50257,
            end_id=50258,
            max_answer_tokens=ANSWER,
        )
        rounded = copy.deepcopy(model)
        self.reasoner = Reasoner(format, model, tokenizer=_NoText())  # type: ignore[arg-type]
        self.int8_reasoner = Reasoner(format, rounded, tokenizer=_NoText(), is_int8=True)  # type: ignore[arg-type]
        self.sampler = Sampler(SamplerSpec.parse("gaussian:0.1"))
        self.prompt = tuple(torch.randint(0, 50257, (PROMPT,)).tolist())

    def unpadded(self, n: int) -> list[list[int]]:
        """Run ours without the rows that fill a pass up to whole blocks."""
        with patch.object(latent.lanes, "_CPU_ROW_BLOCK", 1):
            return self.lanes(n)

    def lanes(self, n: int) -> list[list[int]]:
        """Run ours."""
        return self._lanes(self.reasoner, n)

    def int8(self, n: int) -> list[list[int]]:
        """Run ours with int8 products."""
        return self._lanes(self.int8_reasoner, n)

    def _lanes(self, reasoner: Reasoner, n: int) -> list[list[int]]:
        asks = [Ask(self.prompt, seed=1, indices=tuple(range(n)))]
        done = rollout(reasoner, self.sampler, asks)[0]
        return [list(trajectory.tokens) for trajectory in done.trajectories]

    def repeated(self, n: int, first: int = 0) -> list[list[int]]:
        """Run (b): one prefill, its cache repeated n times, a batch of n."""
        base, head = self.plain.transformer, self.plain.lm_head
        noise = LaneNoise((1,) * n, tuple(range(first, first + n))).normal(THOUGHTS, CONFIG.n_embd)
        cache = DynamicCache()
        prompt = torch.tensor([self.prompt])
        with torch.no_grad():
            hidden = base(prompt, past_key_values=cache, use_cache=True).last_hidden_state[:, -1:]
            cache.batch_repeat_interleave(n)
            hidden = hidden.expand(n, -1, -1)
            for k in range(THOUGHTS):
                thought = hidden + 0.1 * noise[k][:, None]
                hidden = base(inputs_embeds=thought, past_key_values=cache).last_hidden_state
            tokens = torch.full((n, 1), 50258)
            texts = []
            for _ in range(ANSWER):
                hidden = base(tokens, past_key_values=cache).last_hidden_state
                logits = head(hidden)
                tokens = logits.argmax(-1)
                logits.gather(-1, tokens[..., None])[..., 0] - logits.logsumexp(-1)
                texts.append(tokens)
        return torch.cat(texts, dim=1).tolist()

    def single(self, n: int) -> None:
        """Run (a): trajectories one after the other."""
        for index in range(min(n, SINGLE_SHARE)):
            self.repeated(1, first=index)

    def products(self, n: int) -> None:
        """Run (c): only the matrix products, of the same shapes."""
        d, heads, v = CONFIG.n_embd, CONFIG.n_head, CONFIG.vocab_size
        blocks = [
            [
                block.attn.c_attn.weight,
                block.attn.c_proj.weight,
                block.mlp.c_fc.weight,
                block.mlp.c_proj.weight,
            ]
            for block in self.plain.transformer.h
        ]
        with torch.no_grad():
            for rows, steps in ((PROMPT, 1), (n, THOUGHTS + ANSWER)):
                x, wide = torch.ones(rows, d), torch.ones(rows, 4 * d)
                q = torch.ones(heads, rows, d // heads)
                kv = torch.ones(heads, PROMPT, d // heads)
                own = torch.ones(rows * heads, THOUGHTS + ANSWER, d // heads)
                for step in range(steps):
                    for block in blocks:
                        weights = q @ kv.transpose(1, 2)
                        weights @ kv
                        if rows == n:
                            part = own[:, : step + 1]
                            near = q.reshape(-1, 1, d // heads) @ part.transpose(1, 2)
                            near @ part
                        for weight in block:
                            (wide if weight.shape[0] == 4 * d else x) @ weight
                    if rows == n and step >= THOUGHTS:
                        x @ self.plain.lm_head.weight.t()
            assert v == self.plain.lm_head.weight.shape[0]


class _NoText:
    """Stands in for a tokenizer where only token ids matter."""

    def decode(self, *_: object, **__: object) -> str:
        return ""


def _seconds(run: Callable[[int], object], n: int) -> float:
    started = time.perf_counter()
    run(n)
    return time.perf_counter() - started


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--budgets", default="1,2,4,8,16,32,64,128")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    contest = Contest()
    assert contest.lanes(4) == contest.repeated(4), "the contestants must agree on every token"
    contestants = (
        contest.lanes,
        contest.int8,
        contest.unpadded,
        contest.single,
        contest.repeated,
        contest.products,
    )
    print(
        "   N   lanes s  (a)/lanes  (b)/lanes  lanes/(c)  lanes/int8  lanes/unpadded  prompt KV MiB"
    )
    for n in (int(text) for text in options.budgets.split(",")):
        times: dict[str, list[float]] = {run.__name__: [] for run in contestants}
        for _ in range(options.repeats):
            for run in contestants:
                times[run.__name__].append(_seconds(run, n))
        ours, int8, unpadded, alone, batch, bare = (
            statistics.median(values) for values in times.values()
        )
        alone *= n / min(n, SINGLE_SHARE)
        prefix = contest.reasoner.prefill([contest.prompt])[0]
        print(
            f"{n:4d} {ours:9.3f} {alone / ours:9.2f}x {batch / ours:9.2f}x {ours / bare:9.2f}x"
            f" {ours / int8:10.2f}x"
            f" {ours / unpadded:14.2f}x"
            f" {prefix.nbytes / 2**20:13.1f}"
        )


if __name__ == "__main__":
    main()
