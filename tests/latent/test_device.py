"""What --device and --dtype resolve to, and what a CPU cannot do."""

import subprocess

import pytest
import torch

from latent import device
from latent.errors import InputError

CPU = torch.device("cpu")


def test_auto_is_int8_on_any_cpu() -> None:
    assert device.resolve_dtype("auto", CPU) == torch.int8
    assert device.resolve_dtype("auto", torch.device("cuda")) == torch.bfloat16


@pytest.mark.parametrize(
    ("code", "stderr", "why"),
    [(-4, "", "was killed by SIGILL"), (1, "Traceback\nRuntimeError: no kernel", "no kernel")],
)
def test_a_precision_that_kills_or_fails_in_a_child_is_refused(
    monkeypatch: pytest.MonkeyPatch, code: int, stderr: str, why: str
) -> None:
    device._try_product.cache_clear()
    dead = subprocess.CompletedProcess([], code, "", stderr)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: dead)
    with pytest.raises(InputError, match=f"bf16 does not work on this CPU.*{why}.*use fp32"):
        device.resolve_dtype("bf16", CPU)
    device._try_product.cache_clear()


def test_a_precision_that_works_is_taken() -> None:
    device._try_product.cache_clear()
    assert device.resolve_dtype("bf16", CPU) == torch.bfloat16
