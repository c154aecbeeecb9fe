"""The self-check says `bits` only where equal lanes give equal bits in every batch it tries."""

from pathlib import Path

import pytest
import torch

from latent.lanes import LaneCache
from latent.reasoner import Reasoner
from latent.reproducibility import (
    Reproducibility,
    check_reproducibility,
    known_reproducibility,
)
from tests.reasoners import make_reasoner


def test_a_state_that_depends_on_the_rows_of_its_pass_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reasoner = make_reasoner("coconut", "llama", dtype=torch.float32)
    step = reasoner.step

    def uneven(inputs: torch.Tensor, cache: LaneCache, slot: int) -> torch.Tensor:
        return step(inputs, cache, slot) * (1 + 1e-7 * (len(inputs) > 64))

    monkeypatch.setattr(reasoner, "step", uneven)
    found = check_reproducibility(reasoner)
    assert found.kind == "tokens"
    assert "79, 2 lanes" in found.reason


def test_a_state_that_depends_on_its_place_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    reasoner = make_reasoner("codi", "gpt2", dtype=torch.float32)
    feedback = reasoner.feedback

    def uneven(hidden: torch.Tensor) -> torch.Tensor:
        out = feedback(hidden).clone()
        out[5:8] *= 1 + 1e-6
        return out

    monkeypatch.setattr(reasoner, "feedback", uneven)
    assert check_reproducibility(reasoner).kind == "tokens"


def test_a_prompt_that_depends_on_its_mates_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    reasoner = make_reasoner("coconut", "gpt2", dtype=torch.float32)
    prefill = Reasoner.prefill

    def uneven(prompts: list[tuple[int, ...]]) -> list[object]:
        done = prefill(reasoner, prompts)
        done[0].kv.mul_(1 + 1e-6 * (len(prompts) - 1))
        return list(done)

    monkeypatch.setattr(reasoner, "prefill", uneven)
    found = check_reproducibility(reasoner)
    assert (found.kind, "prefilled" in found.reason) == ("tokens", True)


def test_a_gpu_is_not_promised_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reasoner, "device", property(lambda _: torch.device("cuda")))
    reasoner = object.__new__(Reasoner)
    assert check_reproducibility(reasoner).kind == "tokens"


def test_a_result_is_kept_for_the_same_circumstances_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    measured = [Reproducibility("tokens", "first"), Reproducibility("bits", "second")]
    monkeypatch.setattr("latent.reproducibility.check_reproducibility", lambda _: measured.pop(0))
    monkeypatch.setenv("GTS_CACHE", str(tmp_path))
    reasoner = make_reasoner("coconut", "gpt2", dtype=torch.float32)
    reasoner.fingerprint = "of its weights"
    first = known_reproducibility(reasoner)
    assert (known_reproducibility(reasoner), first.reason) == (first, "first")
    (file,) = tmp_path.iterdir()
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    assert known_reproducibility(reasoner).reason == "second"
    monkeypatch.delenv("MKL_CBWR")
    file.write_text("{")
    measured.append(Reproducibility("bits", "third"))
    assert known_reproducibility(reasoner).reason == "third"
    assert "is damaged" in caplog.text


def test_without_a_cache_or_a_fingerprint_nothing_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reasoner = make_reasoner("coconut", "gpt2", dtype=torch.float32)
    monkeypatch.setenv("GTS_CACHE", str(tmp_path))
    assert known_reproducibility(reasoner) == check_reproducibility(reasoner)
    assert list(tmp_path.iterdir()) == []
