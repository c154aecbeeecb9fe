"""What int8 gains and what it costs: single layers, whole answers, and paired accuracy.

    python -m benchmarks.int8 layers
    python -m benchmarks.int8 solve [--model smollm2-cot] [--budgets 16,32] [--repeats 3]
    python -m benchmarks.int8 paired runs/fp32 runs/int8

`layers` and `solve` time fp32 and int8 in turn, in CPU seconds of one thread. `paired` reads two folders
of `gts evaluate` with the same questions: the mean difference by question, with a 95% interval.
"""

import argparse
import json
from functools import partial
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
import torch.nn.functional as F

import latent
from benchmarks.passes import alternate
from latent.int8 import Int8Linear, RowQuantiser
from trainer.evaluation.statistics import interval

SHAPES = ((128, 384), (128, 1590), (256, 768), (384, 384), (384, 1152), (576, 192), (576, 576))
ROWS = (16, 32, 128)
CALLS = 50
QUESTION = (
    "A baker makes 24 rolls in the morning and 18 in the afternoon. She sells 30 of them at 2 dollars "
    "each. How many dollars does she earn?"
)


def layers() -> None:
    """Print how many times faster a layer is than in fp32, with the rounding of its input."""
    print("   in   out   " + "  ".join(f"{rows:4d} rows" for rows in ROWS))
    for width, out in SHAPES:
        weight, bias = torch.randn(out, width), torch.randn(out)
        gains = []
        for rows in ROWS:
            inputs = torch.randn(rows, width)
            seconds = alternate(
                [partial(_plain, inputs, weight, bias), _rounded(inputs, weight, bias)], 9
            )
            gains.append(seconds[0] / seconds[1])
        print(f"{width:5d} {out:5d}   " + "  ".join(f"{gain:8.2f}x" for gain in gains))


def _plain(inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> None:
    for _ in range(CALLS):
        F.linear(inputs, weight, bias)


def _rounded(inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> partial[None]:
    layer = Int8Linear(weight, bias, RowQuantiser())

    def run() -> None:
        for _ in range(CALLS):
            layer(inputs.view_as(inputs))  # a new tensor, so that it is rounded each time

    return partial(run)


def solve(model: str, budgets: list[int], repeats: int) -> None:
    """Print CPU seconds of one answer; `held` is int8 as on a CPU without int8 products."""
    reasoners = [latent.load(model, device="cpu", dtype=dtype) for dtype in ("fp32", "int8")]
    with patch.object(latent.int8, "has_int8_product", lambda: False):
        reasoners.append(latent.load(model, device="cpu", dtype="int8"))
    print("   N    fp32 s    int8 s    held s   fp32/int8   fp32/held")
    for budget in budgets:
        runs = [partial(each.solve, QUESTION, budget=budget, seed=1) for each in reasoners]
        plain, rounded, held = alternate(runs, repeats)
        print(
            f"{budget:4d} {plain:9.2f} {rounded:9.2f} {held:9.2f} {plain / rounded:10.2f}x"
            f" {plain / held:10.2f}x"
        )


def paired(first: Path, second: Path) -> None:
    """Print the differences second − first, by sampler."""
    one, other = _records(first), _records(second)
    for sampler in dict.fromkeys(key[0] for key in one):
        keys = [key for key in one if key[0] == sampler and key in other]
        for name in ("deterministic", "pass", "SG"):
            pairs = [(_measure(one[key], name), _measure(other[key], name)) for key in keys]
            values = np.array([pair for pair in pairs if None not in pair], dtype=np.float64)
            if not len(values):
                continue
            found = interval(values[:, 1] - values[:, 0], seed=0)
            assert found is not None
            before, after = values.mean(0)
            print(
                f"{sampler} {name}: {before:.3f} → {after:.3f}, difference {found.value:+.3f} "
                f"[{found.low:+.3f}, {found.high:+.3f}], {len(values)} questions"
            )


def _records(folder: Path) -> dict[tuple[str, int], dict[str, object]]:
    rows = map(json.loads, (folder / "results.jsonl").read_text().splitlines())
    return {(row["sampler"], row["index"]): row for row in rows}


def _measure(row: dict[str, object], name: str) -> object:
    if name == "deterministic":
        return row["deterministic_correct"]
    if row["gain"] is None:  # nothing was sampled
        return None
    return row["gain"] if name == "SG" else bool(row["correct"])


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", choices=("layers", "solve", "paired"))
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--model", default="smollm2-cot")
    parser.add_argument("--budgets", default="16,32")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.what == "layers":
        layers()
    elif options.what == "solve":
        solve(options.model, [int(text) for text in options.budgets.split(",")], options.repeats)
    elif len(options.folders) == 2:
        paired(*options.folders)
    else:
        parser.error("paired takes two folders of gts evaluate")


if __name__ == "__main__":
    main()
