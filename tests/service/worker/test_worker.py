"""The worker's own code, in this process: what it loads and what it reports."""

from functools import partial
from pathlib import Path

import pytest

import latent.store
from latent.compiling import compile_steps
from latent.folders import fingerprint
from latent.rollout import Ask, rollout
from latent.samplers import Sampler
from latent.specs import SamplerSpec
from service.engine.messages import LaneReport, RoundReport, RoundTask, Task, WorkerConfig
from service.models import Catalog
from service.worker import worker as worker_module
from service.worker.worker import Worker
from tests.reasoners import QUESTIONS, make_counting_reasoner


@pytest.fixture
def worker(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Worker:
    def hashed(folder: Path) -> str:
        raise AssertionError(f"{folder} was hashed again")

    config = WorkerConfig(Catalog([str(folder)]).places(), "cpu", "auto", 1, 2**20)
    monkeypatch.setattr(latent.store, "fingerprint", hashed)
    return Worker(config)


def test_a_worker_takes_the_fingerprint_that_it_is_given(worker: Worker, folder: Path) -> None:
    worker.warm_up()  # which loads the sampler, for this fingerprint only
    assert worker._models["counting"].fingerprint == fingerprint(folder)


def test_a_report_has_the_counts_of_tokens_and_not_the_tokens(worker: Worker) -> None:
    task = Task("job", QUESTIONS[0], 3, tuple(range(8)))
    report = worker.run(RoundTask(0, ("solve", "counting", "gaussian:1.0"), (task,), 64))
    assert isinstance(report, RoundReport)
    lanes = report.results["job"]
    assert isinstance(lanes, LaneReport)
    reasoner = make_counting_reasoner()
    ask = Ask(reasoner.encode(QUESTIONS[0]), 3, tuple(range(8)))
    (whole,) = rollout(reasoner, Sampler(SamplerSpec.parse("gaussian:1.0")), [ask])
    assert lanes.answer_tokens == tuple(len(each.tokens) for each in whole.trajectories)
    assert all(lanes.answer_tokens)
    assert [each.answer for each in lanes.trajectories] == [t.answer for t in whole.trajectories]
    assert not any(each.tokens or each.token_logprobs for each in lanes.trajectories)


def test_snr_is_measured_once_in_a_while(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(worker_module.time, "monotonic", lambda: now)

    def snr() -> tuple[float, ...] | None:
        task = Task("job", QUESTIONS[0], 3, (0, 1))
        report = worker.run(RoundTask(0, ("solve", "counting", "gts"), (task,), 64))
        assert isinstance(report, RoundReport)
        lanes = report.results["job"]
        assert isinstance(lanes, LaneReport)
        return lanes.snr

    first = snr()
    assert first is not None
    now += 0.5
    assert snr() is None
    now += 0.6
    assert snr() == first


def test_a_worker_compiles_before_it_is_ready_and_says_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    captured = partial(compile_steps, backend="eager")  # code for a CPU takes minutes to compile
    monkeypatch.setattr(worker_module, "compile_steps", captured)
    places = Catalog([str(folder)]).places()
    plain = Worker(WorkerConfig(places, "cpu", "auto", 1, 2**20))
    compiled = Worker(WorkerConfig(places, "cpu", "auto", 1, 2**20, compiled_lanes=32))
    with caplog.at_level("INFO", "gts.worker"):
        compiled.warm_up()
    lines = [vars(record) for record in caplog.records if record.message == "compiled a step"]
    shapes = [(line["model"], line["lanes"], line["prompt_tokens"]) for line in lines]
    assert shapes == [("counting", rows, prompt) for rows in (16, 32) for prompt in (64, 128)]
    assert all(line["seconds"] >= 0 for line in lines)
    assert compiled.ready().reproducible == {"counting": "tokens"}
    tasks = tuple(Task(str(n), QUESTIONS[n], n, tuple(range(5 * n + 1))) for n in range(4))
    round = RoundTask(0, ("solve", "counting", "gts"), tasks, 32)
    found = []
    for worker in (plain, compiled):
        report = worker.run(round)
        assert isinstance(report, RoundReport)
        lanes = [report.results[str(n)] for n in range(4)]
        found.append([[t.text for t in one.trajectories] for one in lanes])  # type: ignore[union-attr]
    assert found[0] == found[1]
