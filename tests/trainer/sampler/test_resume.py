import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import trainer.runs.checkpoint
from latent.errors import FormatError, InputError, MismatchError
from tests.trainer.sampler.toys import TargetToy, toy_questions
from trainer.runs.divergence import DivergedError
from trainer.sampler.config import PRESETS
from trainer.sampler.loop import TrainingResult, train

TOY = TargetToy()
QUESTIONS, VALIDATION = toy_questions(40, [1, 3]), toy_questions(8, [1, 3], "v")
CONFIG = replace(
    PRESETS["default"],
    prompts=8,
    group_size=8,
    steps=25,
    lr=0.02,
    warmup=5,
    validation_lanes=32,
    validation_every=6,
)


class KilledError(Exception):
    pass


class Killer:
    """A progress display that raises at a step, as a kill there would end the run."""

    def __init__(self, step: int) -> None:
        self._step = step

    def show(self, step: int, metrics: dict[str, float | str]) -> None:
        if step == self._step:
            raise KilledError

    def note(self, text: str) -> None:
        if text.startswith(f"step {self._step}:"):
            raise KilledError


def run(out: Path, **settings: Any) -> TrainingResult:
    arguments = {"config": CONFIG, "checkpoint_every": 4, **settings}
    return train(TOY, QUESTIONS, VALIDATION, out, **arguments)


def log_of(out: Path) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    return [{name: v for name, v in record.items() if name != "seconds"} for record in records]


def assert_same(left: TrainingResult, right: TrainingResult) -> None:
    assert left.weights.keys() == right.weights.keys()
    assert all(torch.equal(left.weights[name], right.weights[name]) for name in left.weights)
    assert left.best == right.best


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Folder and result of an uninterrupted run; tests that write take a copy of the folder."""
    out = tmp_path_factory.mktemp("whole") / "run"
    return out, run(out)


@pytest.fixture
def finished(whole, tmp_path):
    return Path(shutil.copytree(whole[0], tmp_path / "run"))


@pytest.mark.parametrize("step", [0, 6, 10, 12, 20, 24])
def test_a_killed_run_ends_as_an_uninterrupted_one(tmp_path, whole, step):
    with pytest.raises(KilledError):
        run(tmp_path / "killed", progress=Killer(step))
    assert_same(run(tmp_path / "killed"), whole[1])
    assert log_of(tmp_path / "killed") == log_of(whole[0])


def test_a_run_killed_again_and_again_ends_as_an_uninterrupted_one(tmp_path, whole):
    for step in (6, 10, 18):
        with pytest.raises(KilledError):
            run(tmp_path / "killed", progress=Killer(step))
    assert_same(run(tmp_path / "killed"), whole[1])
    assert log_of(tmp_path / "killed") == log_of(whole[0])


def test_a_kill_in_the_middle_of_a_checkpoint_leaves_the_one_before(tmp_path, whole, monkeypatch):
    real, calls = trainer.runs.checkpoint.write_json, []

    def dying(path: Path, data: Any) -> None:
        calls.append(path)
        if len(calls) == 3:  # the index of step 12
            raise KilledError
        real(path, data)

    with monkeypatch.context() as patched:
        patched.setattr(trainer.runs.checkpoint, "write_json", dying)
        with pytest.raises(KilledError):
            run(tmp_path / "killed")
    index = json.loads((tmp_path / "killed" / "checkpoint" / "sampler.json").read_text())
    assert index["step"] == 8
    assert_same(run(tmp_path / "killed"), whole[1])
    assert len(list((tmp_path / "killed" / "checkpoint").iterdir())) == 2


def test_a_finished_run_started_again_gives_its_result_again(finished, whole):
    log = (finished / "log.jsonl").read_bytes()
    assert_same(run(finished), whole[1])
    assert (finished / "log.jsonl").read_bytes() == log


def test_the_same_seed_gives_the_same_sampler_and_another_seed_another(tmp_path, whole):
    first = run(tmp_path / "a")
    assert_same(first, whole[1])
    other = run(tmp_path / "c", config=replace(CONFIG, seed=1))
    assert any(not torch.equal(first.weights[n], other.weights[n]) for n in first.weights)


def test_resuming_with_another_setting_names_it(finished):
    with pytest.raises(MismatchError, match=r"lr = 0\.02, not 0\.05"):
        run(finished, config=replace(CONFIG, lr=0.05))


def test_resuming_with_another_reasoner_names_it(finished):
    other = TargetToy(fingerprint="another")
    with pytest.raises(MismatchError, match="reasoner = 'toy-fingerprint', not 'another'"):
        train(other, QUESTIONS, VALIDATION, finished, CONFIG)


def test_resuming_on_other_data_names_it(finished):
    with pytest.raises(MismatchError, match="data = "):
        train(TOY, QUESTIONS[1:], VALIDATION, finished, CONFIG)


def test_a_corrupt_checkpoint_is_refused_and_left_alone(finished):
    path = next((finished / "checkpoint").glob("*.safetensors"))
    path.write_bytes(path.read_bytes()[:-8])
    before = {p: p.read_bytes() for p in finished.rglob("*") if p.is_file()}
    with pytest.raises(FormatError, match=path.name):
        run(finished)
    assert before == {p: p.read_bytes() for p in finished.rglob("*") if p.is_file()}


def test_a_changed_checkpoint_is_refused(finished):
    path = next((finished / "checkpoint").glob("*.safetensors"))
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(FormatError, match="is damaged"):
        run(finished)


def test_a_malformed_index_is_refused(finished):
    index = finished / "checkpoint" / "sampler.json"
    index.write_text('{"step": 3}')
    with pytest.raises(FormatError, match="is not a checkpoint of this trainer"):
        run(finished)


@pytest.mark.parametrize("name", ["checkpoint.pt", "checkpoint/checkpoint.json"])
def test_a_checkpoint_of_an_earlier_version_is_refused_in_one_line(tmp_path, name):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"old")
    with pytest.raises(FormatError, match="earlier version and can't be resumed") as raised:
        run(tmp_path)
    assert "\n" not in str(raised.value)
    assert path.read_bytes() == b"old"


def test_a_lost_log_is_refused(finished):
    (finished / "log.jsonl").unlink()
    with pytest.raises(FormatError, match=r"log\.jsonl is shorter"):
        run(finished)


def test_a_finished_sampler_is_not_overwritten(tmp_path):
    (tmp_path / "sampler.json").write_text("{}")
    with pytest.raises(InputError, match="choose another --out"):
        run(tmp_path)


class NanToy(TargetToy):
    """A toy whose tenth batch holds NaN."""

    def sample(self, heads, draws, lanes):
        episodes = super().sample(heads, draws, lanes)
        if draws[0].question.id.startswith("q") and self.calls.append(0) is None:
            bad = len(self.calls) == 10
            return replace(
                episodes, perturbations=episodes.perturbations * (float("nan") if bad else 1)
            )
        return episodes

    @property
    def calls(self) -> list[int]:
        return self.__dict__.setdefault("_calls", [])


def test_a_nan_loss_is_an_error_and_the_last_checkpoint_stands(tmp_path, whole):
    with pytest.raises(DivergedError, match="diverged at step 9"):
        train(NanToy(), QUESTIONS, VALIDATION, tmp_path / "run", CONFIG, checkpoint_every=4)
    index = json.loads((tmp_path / "run" / "checkpoint" / "sampler.json").read_text())
    assert index["step"] == 8
    assert_same(run(tmp_path / "run"), whole[1])
