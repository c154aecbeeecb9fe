"""Compiled steps: torch.compile of the decoder's step, for a bounded set of shapes.

A shape is (rows T of a pass, prompt positions P). A pass runs in the smallest that holds it. Passes that
none holds, and those that drop activations or are probed, run as they do without compiling; so nothing
is ever compiled after `compile_steps` has returned. On CUDA the steps are recorded as CUDA graphs.
"""

import threading
import time
from collections.abc import Callable, Sequence
from types import FunctionType

import torch

from latent.device import is_out_of_memory
from latent.errors import InputError
from latent.lanes import Prefix
from latent.reasoner import Reasoner, bucket_of
from latent.samplers import Sampler
from latent.static_lanes import STATIC_BLOCK, Arena, Place, StaticLanes, Step, whole_blocks

__all__ = ["PROMPT_BUCKETS", "CompiledSteps", "Report", "compile_steps", "lane_buckets"]

PROMPT_BUCKETS = (64, 128)  # prompt positions; longer prompts are not compiled for
_CALLS = 3  # that a shape needs to be warm: one compiles, and with CUDA graphs one records

Report = Callable[[int, int, float], None]  # rows and prompt positions of a shape, seconds it took


class CompiledSteps:
    """The compiled shapes of one reasoner. One pass may run at a time: `lock` is for that."""

    def __init__(
        self, reasoner: Reasoner, lanes: Sequence[int], prompts: Sequence[int], backend: str
    ) -> None:
        """Without shapes yet. Lanes and prompts are in ascending order."""
        self.lock = threading.Lock()
        self._reasoner, self._backend = reasoner, backend
        self._lanes, self._prompts = tuple(lanes), tuple(prompts)
        self._shapes: dict[tuple[int, int], tuple[Arena, Step]] = {}

    def compile(self, report: Report) -> None:
        """Compile every shape and run it until it is warm."""
        reasoner = self._reasoner
        prefix = reasoner.prefill([(0,)])[0]
        capacity = reasoner.format.suffix_capacity
        for rows in self._lanes:
            inputs = prefix.hidden.repeat(rows, 1)
            for prompt in self._prompts:
                started = time.perf_counter()
                arena = Arena(prefix.kv, rows, prompt, capacity)
                self._shapes[rows, prompt] = arena, _compiled(reasoner, arena, self._backend)
                lanes = StaticLanes([prefix], [rows], self._place(prompt))
                for slot in range(min(_CALLS, capacity)):
                    lanes.step(inputs, slot)
                report(rows, prompt, time.perf_counter() - started)

    def rows_of(
        self, sampler: Sampler, prefixes: Sequence[Prefix], rows: int, capacity: int
    ) -> int | None:
        """Rows of the shape that a pass of `rows` takes, or None if it must run uncompiled."""
        fits = (
            sampler.dropout == 0.0
            and capacity == self._reasoner.format.suffix_capacity
            and max(prefix.bucket for prefix in prefixes) <= self._prompts[-1]
            and rows <= self._lanes[-1]
        )
        return self.smallest(rows) if fits else None

    def smallest(self, rows: int) -> int:
        """The smallest number of rows of a shape that holds so many."""
        return next(size for size in self._lanes if size >= rows)

    def lanes(self, prefixes: Sequence[Prefix], counts: Sequence[int]) -> StaticLanes:
        """Lanes of a pass whose `counts` add up to the rows of a shape."""
        longest = max(prefix.bucket for prefix in prefixes)
        prompt = next(size for size in self._prompts if size >= longest)
        return StaticLanes(prefixes, counts, self._place(prompt))

    def _place(self, prompt: int) -> Place:
        return lambda rows: self._shapes[rows, prompt]


@torch.no_grad()
def compile_steps(
    reasoner: Reasoner,
    lanes: Sequence[int],
    prompts: Sequence[int] = PROMPT_BUCKETS,
    report: Report = lambda *_: None,
    backend: str = "inductor",
) -> None:
    """Compile a reasoner's steps for these rows × prompt positions, and use them from now on.

    `backend` is torch.compile's.
    """
    if reasoner.is_int8:
        raise InputError(
            "--compile: int8 is not compiled; use --dtype fp32, or leave --compile out",
            param="compile",
        )
    limit = reasoner.position_limit
    room = None if limit is None else limit - reasoner.format.suffix_capacity
    largest = max(prompts) if room is None else bucket_of(room)
    prompts = sorted({min(bucket_of(size), largest) for size in prompts})
    sizes = sorted({whole_blocks(rows) for rows in lanes})
    compiled = CompiledSteps(reasoner, sizes, prompts, backend)
    try:
        compiled.compile(report)
    except Exception as error:
        if is_out_of_memory(error):
            raise
        need = (
            "Triton and a C compiler" if reasoner.device.type == "cuda" else "a C++ compiler (g++)"
        )
        raise InputError(
            f"--compile: torch.compile fails on {reasoner.name}: {_first_line(error)}; it needs {need}: "
            "install that, or leave --compile out",
            param="compile",
        ) from error
    reasoner.compiled = compiled
    vars(reasoner).pop("reproducibility", None)  # found out before, without compiled steps


def lane_buckets(limit: int) -> tuple[int, ...]:
    """Rows that passes of up to `limit` lanes are padded to: 16, 32, 64, … and the limit."""
    sizes = [STATIC_BLOCK]
    while sizes[-1] < limit:
        sizes.append(min(2 * sizes[-1], whole_blocks(limit)))
    return tuple(sizes)


def _compiled(reasoner: Reasoner, arena: Arena, backend: str) -> Step:
    """The step of one shape, to be compiled when it is first called."""

    def step(inputs: torch.Tensor) -> torch.Tensor:
        return reasoner.decode_at(inputs, arena.positions(), arena)

    # With code of its own, it has a cache of compiled graphs of its own: no limit is reached, and no
    # guards of other shapes are tried before a call.
    name = f"step_{arena.rows}_{arena.prompt}"
    code = step.__code__.replace(co_name=name)
    own = FunctionType(code, step.__globals__, name, None, step.__closure__)
    if reasoner.device.type != "cuda":
        return torch.compile(own, fullgraph=True, dynamic=False, backend=backend)
    recorded = torch.compile(own, fullgraph=True, dynamic=False, mode="reduce-overhead")

    def replay(inputs: torch.Tensor) -> torch.Tensor:
        torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        return torch.as_tensor(
            recorded(inputs)
        ).clone()  # the next replay writes to the same memory

    return replay


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].endswith(":"):  # such as "backend='inductor' raised:"
        lines[0] += f" {lines[1]}"
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
