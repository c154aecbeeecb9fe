"""Resolves --device and --dtype to what torch understands."""

import re
import subprocess
import sys
from functools import cache

import torch

from latent.errors import InputError, exit_reason

__all__ = ["is_out_of_memory", "parse_dtype", "resolve_device", "resolve_dtype"]

_DTYPES = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp64": torch.float64,
    "int8": torch.int8,
}


def resolve_device(text: str) -> torch.device:
    """Turn auto, cpu, cuda or cuda:1 into a device that is there."""
    if text == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if not re.fullmatch(r"cpu|cuda(:[0-9]{1,3})?", text):
        raise InputError(f"unknown device {text!r}; use auto, cpu, cuda or cuda:0", param="device")
    if text != "cpu" and int(text.partition(":")[2] or 0) >= torch.cuda.device_count():
        there = torch.cuda.device_count()
        raise InputError(f"no device {text!r} here: {there} CUDA devices; use cpu", param="device")
    return torch.device(text)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed; on a CPU torch raises a plain RuntimeError for that."""
    is_plain = isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)
    return is_plain or isinstance(error, torch.OutOfMemoryError | MemoryError)


def resolve_dtype(text: str, device: torch.device) -> torch.dtype:
    """Turn auto, fp32, bf16, fp16, fp64 or int8 into a dtype; auto is bf16 on CUDA, int8 elsewhere.

    int8 does not depend on the kind of CPU, so that all give the same answers; a decoder that is too
    small to gain by it stays fp32 (`latent.int8.quantise_`).
    """
    if text == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.int8
    dtype = parse_dtype(text)
    if text == "int8" and device.type != "cpu":
        raise InputError(f"int8 is for CPUs; use bf16 on {device.type}", param="dtype")
    if device.type == "cpu" and text in ("bf16", "fp16"):
        failure = _try_product(dtype)
        if failure:
            raise InputError(
                f"{text} does not work on this CPU: a matrix product {failure}; use fp32",
                param="dtype",
            )
    return dtype


def parse_dtype(text: str) -> torch.dtype:
    """Turn fp32, bf16, fp16, fp64 or int8 into a dtype, without asking whether the device can use it."""
    if text not in _DTYPES:
        raise InputError(f"unknown dtype {text!r}; use {', '.join(_DTYPES)}", param="dtype")
    return _DTYPES[text]


@cache
def _try_product(dtype: torch.dtype) -> str | None:
    """Multiply in a child process; return how that failed, or None.

    A virtual machine may announce matrix instructions that it does not have, and the process that
    tries them is killed. So a child tries them first.
    """
    code = f"import torch; x = torch.ones(64, 64, dtype={dtype}); torch.nn.functional.linear(x, x)"
    try:
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
        )
    except subprocess.TimeoutExpired:
        return "did not end in two minutes"
    if done.returncode < 0:
        return f"was {exit_reason(done.returncode)}"
    if done.returncode > 0:
        lines = done.stderr.strip().splitlines() or [f"ended with exit code {done.returncode}"]
        return f"failed: {lines[-1]}"
    return None
