"""`gts bench`: how fast a model's lanes are here, and what share of the device's own peak that is."""

import json
import time
from collections.abc import Callable, Sequence
from itertools import product
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.options import Device, Dtype, Json, Model, Threads, load_reasoner
from latent.zoo import DEFAULT_LATENT_MODEL

if TYPE_CHECKING:
    import torch

    from latent.reasoner import Reasoner
    from latent.samplers import Sampler

_QUESTION = "A shop has {0} boxes of {1} pens and sells {0} pens. How many pens are left?"


def bench_command(
    model: Model = DEFAULT_LATENT_MODEL,
    sampler: Annotated[str | None, typer.Option(help="Default: the reasoner's own.")] = None,
    budgets: Annotated[str, typer.Option(help="Lanes of a question, by commas.")] = "1,16,64",
    questions: Annotated[str, typer.Option(help="Questions in a batch, by commas.")] = "1,8",
    repeats: Annotated[int, typer.Option(min=1, help="Times each is run; the median counts.")] = 3,
    device: Device = "auto",
    dtype: Dtype = "auto",
    threads: Threads = None,
    is_compiled: Annotated[
        bool, typer.Option("--compile", help="Compile the decoder's steps first; takes minutes.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Measure lanes per second against budget and batch, on the present device.

    `of peak` is the share of the fastest matrix product measured here, 2048 wide, that the decoder's
    own operations reach; the rest is attention, other work and waiting.

    [bold]Examples[/bold]

    gts bench --budgets 16 --questions 1 --repeats 1

    gts bench --device cuda --budgets 1,32,256 --questions 1,8,32 --json
    """
    reasoner = load_reasoner(model, device, dtype, threads)
    drawn = reasoner.sampler(sampler or reasoner.format.default_sampler)
    sizes = list(product(_numbers(questions, "questions"), _numbers(budgets, "budgets")))
    if is_compiled:
        _compile(reasoner, drawn, sizes)
    peak = _peak(reasoner)
    rows = [_measure(reasoner, drawn, *size, repeats, peak) for size in sizes]
    about = _about(reasoner, drawn, peak)
    if as_json:
        typer.echo(json.dumps({**about, "rows": rows}, indent=2))
        return
    how = ", compiled" if is_compiled else ""
    typer.echo(
        f"{about['model']}, {about['sampler']}, {about['device_name']}, {about['dtype']}, "
        f"{about['threads']} threads{how}: peak {peak / 1e9:.0f} G operations a second"
    )
    typer.echo("questions  budget   seconds   lanes/s   of peak")
    for row in rows:
        typer.echo(
            f"{row['questions']:9d} {row['budget']:7d} {row['seconds']:9.3f} "
            f"{row['lanes_per_second']:9.1f} {row['share_of_peak']:9.1%}"
        )


def _numbers(text: str, name: str) -> list[int]:
    from latent.errors import InputError

    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 1:
        raise InputError(f"--{name}: give whole numbers from 1 on, by commas; got {text!r}")
    return found


def _compile(reasoner: "Reasoner", sampler: "Sampler", sizes: Sequence[tuple[int, int]]) -> None:
    """Compile for passes of these questions × lanes; say on standard error how long that took."""
    from latent.compiling import compile_steps, lane_buckets
    from latent.errors import InputError
    from latent.static_lanes import whole_blocks

    if sampler.dropout:
        raise InputError("--compile: dropout is not compiled; choose another --sampler")

    def report(rows: int, prompt: int, seconds: float) -> None:
        what = f"compiled {rows} lanes with prompts of {prompt} tokens"
        typer.echo(f"{what}: {seconds:.1f} s", err=True)

    largest = max(count * whole_blocks(budget) for count, budget in sizes)
    longest = max(len(prompt) for prompt in _prompts(reasoner, max(n for n, _ in sizes)))
    compile_steps(reasoner, lane_buckets(largest), (longest,), report)


def _prompts(reasoner: "Reasoner", questions: int) -> list[tuple[int, ...]]:
    return [reasoner.encode(_QUESTION.format(n + 3, n + 5)) for n in range(questions)]


def _measure(
    reasoner: "Reasoner", sampler: "Sampler", questions: int, budget: int, repeats: int, peak: float
) -> dict[str, Any]:
    """Median seconds of a rollout without its prefill, which later rounds do not repeat."""
    from dataclasses import replace

    from latent.rollout import Ask, rollout
    from latent.static_lanes import whole_blocks
    from latent.trajectory import budget_indices

    asks = [
        Ask(prompt, n, budget_indices(budget))
        for n, prompt in enumerate(_prompts(reasoner, questions))
    ]
    lanes, limit = questions * budget, questions * whole_blocks(budget)  # all in one pass
    warm = rollout(reasoner, sampler, asks, lane_limit=limit)
    asks = [replace(ask, prefix=done.prefix) for ask, done in zip(asks, warm, strict=True)]
    seconds = _median(lambda: rollout(reasoner, sampler, asks, lane_limit=limit), repeats, reasoner)
    tokens = sum(len(each.tokens) for done in warm for each in done.trajectories)
    head = reasoner.vocabulary_size * reasoner.width
    weights = reasoner.parameter_count - head  # of the decoder; embeddings are looked up
    positions = lanes * reasoner.format.latent_positions + tokens
    operations = 2.0 * (weights * positions + head * tokens)
    return {
        "questions": questions,
        "budget": budget,
        "seconds": seconds,
        "lanes_per_second": lanes / seconds,
        "share_of_peak": operations / seconds / peak,
    }


def _peak(reasoner: "Reasoner") -> float:
    """Operations per second of a square matrix product, in the decoder's precision."""
    import torch

    from latent.int8 import has_int8_product

    size = 2048
    if reasoner.is_int8 and has_int8_product():
        numbers = torch.ones(size, size, dtype=torch.int8)
        return 2.0 * size**3 / _median(lambda: torch._int_mm(numbers, numbers), 3, reasoner)
    matrix = torch.ones(size, size, device=reasoner.device, dtype=reasoner.dtype)
    return 2.0 * size**3 / _median(lambda: matrix @ matrix, 3, reasoner)


def _median(run: Callable[[], object], repeats: int, reasoner: "Reasoner") -> float:
    import statistics

    times = []
    for number in range(repeats + 1):
        _wait(reasoner.device)
        started = time.perf_counter()
        run()
        _wait(reasoner.device)
        if number:  # the first warms up
            times.append(time.perf_counter() - started)
    return statistics.median(times)


def _wait(device: "torch.device") -> None:
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _about(reasoner: "Reasoner", sampler: "Sampler", peak: float) -> dict[str, Any]:
    import platform

    import torch

    device = reasoner.device
    is_cuda = device.type == "cuda"
    name = torch.cuda.get_device_name(device) if is_cuda else platform.processor() or "CPU"
    capability = None if is_cuda else torch.backends.cpu.get_cpu_capability()
    return {
        "model": reasoner.name,
        "sampler": str(sampler.spec),
        "device": str(device),
        "device_name": f"{name} {capability}" if capability else name,
        "dtype": reasoner.precision,
        "threads": torch.get_num_threads(),
        "is_compiled": reasoner.compiled is not None,
        "torch": torch.__version__,
        "peak_operations_per_second": peak,
    }
