"""One pass for all: what mixed lengths and dropout cost, and how far a pass is from its matrix products.

    python -m benchmarks.passes [--model coconut-tiny] [--questions 32] [--lanes 32] [--repeats 5]

All are timed in turn in one run, in seconds of CPU time of one thread, so that other work on the machine
disturbs the ratios little. `products` replays the matrix products of the same rollout, with the same
shapes and strides and nothing else.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from latent.reasoner import Reasoner, bucket_of
from latent.rollout import Ask, rollout
from latent.store import load_reasoner
from latent.zoo import DEFAULT_LATENT_MODEL, resolve_model

_PRODUCTS = (
    torch.ops.aten.addmm.default,
    torch.ops.aten.mm.default,
    torch.ops.aten.bmm.default,
)
_SHORT = "A shop has {0} pens and sells {1}. How many pens are left?"
_LONG = (
    "A shop has {0} boxes of {1} pens each. On Monday it sells {0} boxes and on Tuesday {1} pens more. "
    "How many pens are left in the shop when it closes on Tuesday?"
)


class Recorder(TorchDispatchMode):
    """Keeps every matrix product of a run: the operation and tensors like its arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.products: list[Callable[[], object]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func in _PRODUCTS:
            self.products.append(partial(func, *args, **(kwargs or {})))
        return func(*args, **(kwargs or {}))


def questions(reasoner: Reasoner, count: int, lanes: int, kind: str) -> list[Ask]:
    """Asks of one prompt bucket, or of as many as the two texts and their numbers give."""
    texts = {"equal": (_LONG,), "mixed": (_SHORT, _LONG)}[kind]
    asks = []
    for n in range(count):
        prompt = reasoner.encode(texts[n % len(texts)].format(n + 3, 2 * n + 5))
        asks.append(Ask(prompt, n, tuple(range(lanes))))
    if kind == "equal":  # the same tokens, cut to one bucket
        shortest = min(bucket_of(len(ask.prompt)) for ask in asks)
        asks = [Ask(ask.prompt[-shortest:], ask.seed, ask.indices) for ask in asks]
    return asks


def alternate(runs: Sequence[Callable[[], object]], repeats: int) -> list[float]:
    """Median CPU seconds of each, timed in turn."""
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(repeats):
        for run, own in zip(runs, times, strict=True):
            started = time.process_time()
            run()
            own.append(time.process_time() - started)
    return [statistics.median(own) for own in times]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", default=DEFAULT_LATENT_MODEL)
    parser.add_argument("--questions", type=int, default=32)
    parser.add_argument("--lanes", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    reasoner = load_reasoner(resolve_model(options.model))
    size = options.questions, options.lanes
    equal, mixed = (questions(reasoner, *size, kind) for kind in ("equal", "mixed"))
    # Every question of the mix by a pass of its own length, as it would be in a round of only those.
    by_length = [
        [ask for ask in mixed if bucket_of(len(ask.prompt)) == length]
        for length in sorted({bucket_of(len(ask.prompt)) for ask in mixed})
    ]
    own = reasoner.sampler(reasoner.format.default_sampler)
    dropout = reasoner.sampler("dropout:0.1")
    with Recorder() as recorder, torch.no_grad():
        rollout(reasoner, own, equal)

    def products() -> None:
        with torch.no_grad():
            for product in recorder.products:
                product()

    runs: list[Callable[[], object]] = [
        partial(rollout, reasoner, own, equal),
        products,
        partial(rollout, reasoner, own, mixed),
        lambda: [rollout(reasoner, own, part * len(by_length)) for part in by_length],
        partial(rollout, reasoner, dropout, equal),
    ]
    bare, replay, both, apart, dropped = alternate(runs, options.repeats)
    lanes = options.questions * options.lanes
    print(f"{options.model}, {options.questions} questions of {options.lanes} lanes")
    print(f"  {own.spec.kind:<12} {bare:7.3f} s   {lanes / bare:6.0f} lanes per CPU second")
    print(f"  its products {replay:7.3f} s   pass / products     {bare / replay:.2f}x")
    print(
        f"  mixed        {both:7.3f} s   mixed / equal       {both * len(by_length) / apart:.2f}x"
    )
    print(f"  dropout:0.1  {dropped:7.3f} s   dropout / {own.spec.kind:<9} {dropped / bare:.2f}x")


if __name__ == "__main__":
    main()
