"""Two gloo ranks against one process, on a real (small, random) reasoner in float32."""

import json
import multiprocessing
import os
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
import torch

from latent.errors import InputError
from latent.files import load_tensors
from latent.samplers import GaussianThoughtSampler
from tests.ports import free_port
from tests.reasoners import QUESTIONS, make_reasoner
from trainer.data.questions import Draw, Question
from trainer.runs.ranks import Ranks, joined_ranks, rank_device
from trainer.sampler.config import PRESETS
from trainer.sampler.episodes import Episodes, ReasonerEnvironment
from trainer.sampler.loop import train

OBJECTIVES = ("mean", "pass@k")
CONFIG = replace(
    PRESETS["default"],
    prompts=3,  # which two ranks cannot split evenly
    group_size=8,
    steps=3,
    lr=1e-3,
    warmup=0,
    decay="none",
    skip_uniform_groups=False,
    validation_lanes=4,
    validation_budget=2,
    validation_every=3,
)


class Babble(ReasonerEnvironment):
    """Counts the more confident half as right: a random reasoner never answers with a number."""

    def sample(self, heads: GaussianThoughtSampler, draws: Sequence[Draw], lanes: int) -> Episodes:
        episodes = super().sample(heads, draws, lanes)
        surer = episodes.logprobs > episodes.logprobs.mean(-1, keepdim=True)
        return replace(episodes, is_correct=surer)


def run(out: Path, ranks: Ranks) -> None:
    torch.set_num_threads(1)
    environment = Babble(make_reasoner(dtype=torch.float32))
    questions = [Question(str(n), text, Decimal(0)) for n, text in enumerate(QUESTIONS)]
    for objective in OBJECTIVES:
        config = replace(CONFIG, objective=objective)
        train(environment, questions, questions[:2], out / objective, config, ranks=ranks)


def one_rank(rank: int, port: int, out: Path) -> None:
    os.environ |= {
        "RANK": str(rank),
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    with joined_ranks(torch.device("cpu")) as ranks:
        run(out, ranks)


def two_ranks(out: Path) -> None:
    port = free_port()
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=one_rank, args=(r, port, out)) for r in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0, 0]


def test_two_ranks_make_the_updates_of_one_process(tmp_path):
    run(tmp_path / "one", Ranks())
    two_ranks(tmp_path / "two")
    for objective in OBJECTIVES:
        folders = [tmp_path / name / objective for name in ("one", "two")]
        one, two = (load_tensors(next((f / "checkpoint").glob("*.safetensors"))) for f in folders)
        for name, tensor in one.items():
            torch.testing.assert_close(two[name], tensor, atol=1e-6, rtol=0, msg=name)
        assert one["heads/mean.2.weight"].abs().max() > 1e-4
        logs = [map(json.loads, (f / "log.jsonl").read_text().splitlines()) for f in folders]
        for left, right in zip(*logs, strict=True):
            for name in left.keys() - {"seconds"}:
                assert left[name] == pytest.approx(right[name], abs=1e-6), name


def test_shares_are_contiguous_and_cover_everything():
    items = list(range(7))
    shares = [Ranks(rank, 3).share(items) for rank in range(3)]
    assert [item for share in shares for item in share] == items
    assert {len(share) for share in shares} <= {2, 3}


def test_more_ranks_than_prompts_is_an_error():
    with pytest.raises(InputError, match="2 prompts cannot be split over 3 ranks"):
        Ranks(0, 3).share([1, 2])


@pytest.mark.parametrize("text", ["auto", "cuda"])
def test_every_rank_takes_a_gpu_of_its_own(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert rank_device(text) == torch.device("cuda:1")
    assert chosen == [torch.device("cuda:1")]
