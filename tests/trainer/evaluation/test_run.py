"""An evaluation from end to end on a small random reasoner: right, resumable, the same on two ranks."""

import json
import multiprocessing
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch

from latent import quality
from latent.answers import same_answer
from latent.errors import FormatError, GtsError, InputError, MismatchError, NotFoundError, SpecError
from latent.folders import SamplerCard, fingerprint
from latent.noise import derive_seed
from latent.rollout import Ask, rollout
from latent.solve import solve
from latent.store import load_reasoner, load_sampler, save_reasoner, save_sampler
from latent.zoo import resolve_sampler
from tests.ports import free_port
from tests.reasoners import QUESTIONS, make_counting_reasoner
from tests.samplers import make_sampler
from trainer.evaluation.config import EvaluationConfig, parse_samplers
from trainer.evaluation.run import evaluate
from trainer.evaluation.subject import load_subject

BUDGET, PROBED, SEED = 8, 4, 5
TEXTS = (*QUESTIONS, "Bea has 5 hats. How many hats is that?", "Tom runs 2 miles and 3 more.")


@pytest.fixture(scope="module", autouse=True)
def few_probed() -> Iterator[None]:
    """Probe half of the samples, so that a question is drawn in two parts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trainer.evaluation.config.GAIN_BUDGET", PROBED)
        yield


@dataclass(frozen=True)
class World:
    """A finished evaluation and its configuration."""

    config: EvaluationConfig
    out: Path
    summary: dict[str, Any]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "counting"
    reasoner = make_counting_reasoner()
    save_reasoner(folder, reasoner.format, reasoner._model, reasoner.tokenizer)
    heads: Any = make_sampler("gts", dtype=torch.float32)
    save_sampler(
        folder / "samplers" / "default", heads.heads, SamplerCard("gts", 32, fingerprint(folder))
    )
    return folder


@pytest.fixture(scope="module")
def world(model: Path, tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("evaluation")
    config = EvaluationConfig(
        model=str(model),
        data=str(folder / "rows.jsonl"),
        samplers=parse_samplers("deterministic,gaussian:0.5,gts"),
        budget=BUDGET,
        seed=SEED,
        threads=1,
        lanes=20,  # two chunks, the last one smaller
    )
    lines = [
        json.dumps({"question": text, "answer": str(truth)})
        for text, truth in zip(TEXTS, _truths(model), strict=True)
    ]
    too_long = json.dumps({"question": "word " * 200, "answer": 1})
    lines[2:2] = ["{torn", too_long]
    Path(config.data).write_text("\n".join(lines) + "\n")
    summary = evaluate(config, folder / "out")
    assert summary is not None
    return World(config, folder / "out", summary)


def _indices() -> list[int]:
    """Indices of the questions; index 2 is the question that is too long."""
    return [0, 1, 3, 4, 5, 6]


def _truths(model: Path) -> list[Decimal]:
    """Take as true answers what trajectories from the third on answer, by either sampler in turn."""
    reasoner = load_reasoner(model)
    truths = []
    for number, (index, text) in enumerate(zip(_indices(), TEXTS, strict=True)):
        spec = parse_samplers(("gaussian:0.5", "gts")[number % 2])[0]
        sampler = load_sampler(reasoner, spec, resolve_sampler(model, spec))
        seed = derive_seed(SEED, "evaluation", index)
        drawn = solve(reasoner, text, sampler, budget=BUDGET, seed=seed).trajectories
        truths.append(next((t.answer for t in drawn[2:] if t.answer is not None), Decimal(1)))
    return truths


def _without_seconds(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_seconds(v) for name, v in value.items() if name != "seconds"}
    return [_without_seconds(item) for item in value] if isinstance(value, list) else value


def _results(out: Path) -> list[Any]:
    lines = (out / "results.jsonl").read_text().splitlines()
    return [_without_seconds(json.loads(line)) for line in lines]


def _assert_same(out: Path, world: World) -> None:
    assert _results(out) == _results(world.out)
    summary = json.loads((out / "summary.json").read_text())
    assert _without_seconds(summary) == _without_seconds(world.summary)


def test_the_summary_is_what_solve_gives_question_by_question(world: World, model: Path) -> None:
    reasoner, truths = load_reasoner(model), _truths(model)
    asked = list(zip(_indices(), TEXTS, truths, strict=True))
    some_right = False
    for name in ("gaussian:0.5", "gts"):
        spec = parse_samplers(name)[0]
        sampler = load_sampler(reasoner, spec, resolve_sampler(model, spec))
        passes: dict[int, list[float]] = {n: [] for n in (1, 2, 4, 8)}
        majority, unique = [], []
        for index, text, truth in asked:
            seed = derive_seed(SEED, "evaluation", index)
            solved = solve(reasoner, text, sampler, budget=BUDGET, seed=seed)
            answers = [t.answer for t in solved.trajectories]
            right = [same_answer(answer, truth) for answer in answers]
            some_right |= any(right) and not all(right)
            for n, values in passes.items():
                chosen = [any(right[i] for i in few) for few in combinations(range(BUDGET), n)]
                values.append(sum(chosen) / len(chosen))
            majority.append(same_answer(solved.tally.winner.answer, truth))
            unique.append(len({answer for answer in answers if answer is not None}))
        found = world.summary["samplers"][name]
        for n, values in passes.items():
            assert found["pass_at"][str(n)]["value"] == pytest.approx(sum(values) / 6, abs=1e-6)
        assert found["votes"]["majority"]["8"]["value"] == pytest.approx(
            sum(majority) / 6, abs=1e-6
        )
        assert found["unique"]["8"]["value"] == pytest.approx(sum(unique) / 6, abs=1e-6)
        assert set(found["votes"]) == {"majority", "confidence", "best", "centroid"}
    assert some_right


def test_gain_and_shift_are_those_of_the_probed_samples(world: World, model: Path) -> None:
    reasoner = load_reasoner(model)
    sampler = make_sampler("gaussian:0.5")
    gains, shifts = [], []
    for index, text, truth in zip(_indices(), TEXTS, _truths(model), strict=True):
        ask = Ask(
            reasoner.encode(text),
            derive_seed(SEED, "evaluation", index),
            (-1, *range(PROBED)),
            reasoner.encode_answer(truth),
        )
        probe = rollout(reasoner, sampler, [ask], with_probe=True)[0].probe
        assert probe is not None
        assert ask.target is not None
        first, token = probe.first_logprobs, torch.tensor(ask.target[0])
        odds = first[:, token] - quality.log_complement(first, token.expand(len(first)))
        gains.append(float((odds[1:] - odds[0]).max()))
        js = quality.js_divergence(probe.first_logprobs[1:], probe.first_logprobs[0])
        shifts.append(float(js.mean()))
    found = world.summary["samplers"]["gaussian:0.5"]
    assert found["gain"]["value"] == pytest.approx(sum(gains) / 6, abs=1e-5)
    assert found["js"]["value"] == pytest.approx(sum(shifts) / 6, abs=1e-5)
    assert found["snr"] is None
    assert len(world.summary["samplers"]["gts"]["snr"]) == reasoner.format.thoughts


def test_the_deterministic_sampler_is_the_one_trajectory(world: World, model: Path) -> None:
    reasoner, truths = load_reasoner(model), _truths(model)
    right = []
    for text, truth in zip(TEXTS, truths, strict=True):
        solved = solve(reasoner, text, make_sampler("deterministic"), budget=1, seed=0)
        right.append(same_answer(solved.tally.winner.answer, truth))
    alone = world.summary["samplers"]["deterministic"]
    assert alone["pass_at"].keys() == {"1"}
    assert alone["trajectories"] == 6
    for found in (alone["pass_at"]["1"], world.summary["deterministic"]["accuracy"]):
        assert found["value"] == pytest.approx(sum(right) / 6, abs=1e-6)


def test_rows_that_can_not_be_asked_are_counted_and_listed_with_their_lines(world: World) -> None:
    data = world.summary["data"]
    assert (data["name"], data["rows"]) == ("rows.jsonl", 6)
    assert [row["line"] for row in data["malformed"]] == [3, 4]
    assert "not JSON" in data["malformed"][0]["reason"]
    assert "too long" in data["malformed"][1]["reason"]


def test_results_are_sorted_by_sampler_and_question(world: World) -> None:
    keys = [(record["sampler"], record["index"]) for record in _results(world.out)]
    assert keys == [(name, n) for name in world.summary["samplers"] for n in _indices()]


@pytest.mark.parametrize("cut", ["nothing", "one line", "inside a line", "the last newline"])
def test_a_resumed_run_gives_the_same_report(world: World, tmp_path: Path, cut: str) -> None:
    shutil.copytree(world.out, tmp_path / "out")
    for name in ("results.jsonl", "summary.json"):
        (tmp_path / "out" / name).unlink()
    part = tmp_path / "out" / "parts" / "rank-0-of-1.jsonl"
    data = part.read_bytes()
    first = data.index(b"\n") + 1
    kept = {
        "nothing": 0,
        "one line": first,
        "inside a line": len(data) // 2,
        "the last newline": len(data) - 1,
    }[cut]
    part.write_bytes(data[:kept])
    evaluate(world.config, tmp_path / "out")
    _assert_same(tmp_path / "out", world)
    assert len(part.read_bytes().splitlines()) == len(data.splitlines())


def test_a_run_resumes_from_the_parts_of_any_number_of_ranks(world: World, tmp_path: Path) -> None:
    shutil.copytree(world.out, tmp_path / "out")
    parts = tmp_path / "out" / "parts"
    whole = parts / "rank-0-of-1.jsonl"
    lines = whole.read_bytes().splitlines(keepends=True)
    whole.unlink()
    (parts / "rank-2-of-3.jsonl").write_bytes(b"".join(lines[5:]))
    (parts / "rank-0-of-3.jsonl").write_bytes(b"".join(lines[:3]) + lines[3][:20])
    evaluate(world.config, tmp_path / "out")
    _assert_same(tmp_path / "out", world)
    assert len(whole.read_bytes().splitlines()) == 2


def test_a_damaged_part_is_named_with_its_line(world: World, tmp_path: Path) -> None:
    shutil.copytree(world.out, tmp_path / "out")
    part = tmp_path / "out" / "parts" / "rank-0-of-1.jsonl"
    part.write_bytes(b'{"sampler": "gts"}\n' + part.read_bytes())
    with pytest.raises(FormatError, match=r"rank-0-of-1\.jsonl, line 1 is no result"):
        evaluate(world.config, tmp_path / "out")


def test_records_of_another_version_are_refused_before_they_are_read(
    world: World, tmp_path: Path
) -> None:
    shutil.copytree(world.out, tmp_path / "out")
    path = tmp_path / "out" / "config.json"
    saved = json.loads(path.read_text())
    del saved["record_version"]  # as older versions of gts left it
    path.write_text(json.dumps(saved))
    with pytest.raises(MismatchError, match="begun by another version of gts"):
        evaluate(world.config, tmp_path / "out")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"seed": 6}, "seed = 5, not 6"),
        ({"budget": 4}, "budget = 8, not 4"),
        ({"limit": 3}, "limit = None, not 3"),
        ({"samplers": parse_samplers("gts")}, "samplers = "),
    ],
)
def test_another_evaluation_in_the_same_folder_is_refused(
    world: World, changed: dict[str, Any], said: str
) -> None:
    with pytest.raises(MismatchError, match=said):
        evaluate(replace(world.config, **changed), world.out)


def test_other_questions_in_a_file_of_the_same_name_are_refused(
    world: World, tmp_path: Path
) -> None:
    data = tmp_path / "rows.jsonl"
    data.write_text(Path(world.config.data).read_text().replace("Ann has 3", "Ann has 4"))
    with pytest.raises(MismatchError, match="data digest = "):
        evaluate(replace(world.config, data=str(data)), world.out)


@pytest.mark.parametrize(
    ("changed", "error", "said"),
    [
        ({"samplers": parse_samplers("gts:nobody")}, NotFoundError, "no sampler 'nobody'"),
        ({"samplers": parse_samplers("gts:./nowhere")}, NotFoundError, "has no sampler"),
        ({"samplers": parse_samplers("token")}, SpecError, "thinks in hidden states"),
        ({"samplers": parse_samplers("dropout:0.1@projection")}, SpecError, "no projection"),
        ({"samplers": parse_samplers("gts,gts:default")}, SpecError, "named twice"),
        ({"model": "nobody"}, NotFoundError, "neither embedded nor a folder"),
        ({"data": "nowhere.jsonl"}, NotFoundError, "no such data file"),
        ({"device": "tpu"}, InputError, "unknown device"),
    ],
)
def test_what_can_not_be_measured_is_refused_before_anything_runs(
    world: World, tmp_path: Path, changed: dict[str, Any], error: type[GtsError], said: str
) -> None:
    with pytest.raises(error, match=said):
        evaluate(replace(world.config, **changed), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_folder_of_something_else_is_left_alone(
    world: World, model: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="holds a reasoner"):
        evaluate(world.config, model)
    (tmp_path / "config.json").write_text('{"width": 3}')
    with pytest.raises(FormatError, match="not an evaluation's"):
        evaluate(world.config, tmp_path)
    with pytest.raises(InputError, match="is a file"):
        evaluate(world.config, model / "config.json")


def test_a_sampler_is_found_by_its_folder_and_known_by_its_weights(
    world: World, model: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    shutil.copytree(model / "samplers" / "default", other)
    subject = load_subject(replace(world.config, samplers=parse_samplers(f"gts,gts:{other}")))
    assert list(subject.samplers) == ["gts", f"gts:{other}"]
    assert len(set(subject.sampler_digests.values())) == 1
    assert "weights of gts" in subject.identity(world.config)


def _one_rank(rank: int, port: int, config: EvaluationConfig, out: Path) -> None:
    os.environ |= {
        "RANK": str(rank),
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trainer.evaluation.config.GAIN_BUDGET", PROBED)
        summary = evaluate(config, out)
    assert (summary is not None) == (rank == 0)


def test_two_ranks_give_the_report_of_one(world: World, tmp_path: Path) -> None:
    port = free_port()
    spawn = multiprocessing.get_context("spawn")
    arguments = (port, world.config, tmp_path / "out")
    processes = [spawn.Process(target=_one_rank, args=(rank, *arguments)) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(300)
    assert [process.exitcode for process in processes] == [0, 0]
    _assert_same(tmp_path / "out", world)
    parts = sorted((tmp_path / "out" / "parts").iterdir())
    assert [part.name for part in parts] == ["rank-0-of-2.jsonl", "rank-1-of-2.jsonl"]
    assert all(part.stat().st_size for part in parts)


def test_samplers_whose_trainings_differ_only_in_the_seed_form_a_group(
    model: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(model, folder)
    for name, config in (
        ("default", {"lr": 1, "seed": 0}),
        ("other", {"lr": 2, "seed": 0}),
        ("seed-1", {"lr": 1, "seed": 1}),
        ("unknown", None),
    ):
        heads: Any = make_sampler("gts", dtype=torch.float32)
        training = {"data": "embedded", **({"config": config} if config else {})}
        card = SamplerCard("gts", 32, fingerprint(folder), training)
        save_sampler(folder / "samplers" / name, heads.heads, card)
    samplers = (
        "gaussian:0.5,gts,gts@0.5,gts:other,gts:seed-1,gts:unknown"  # gts@0.5 has the seed of gts
    )
    config = EvaluationConfig(
        model=str(folder), data="embedded", samplers=parse_samplers(samplers), limit=2, threads=1
    )
    assert load_subject(config).seed_groups == [("gts", "gts:seed-1")]
