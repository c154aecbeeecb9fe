"""`gts train sampler` from the command line to the published files, on a small random reasoner."""

import json
import shutil
from decimal import Decimal

import pytest
from typer.testing import CliRunner

from cli.train_sampler import app
from latent.errors import FormatError, GtsError, InputError, NotFoundError, SpecError
from latent.specs import SamplerSpec
from latent.store import load_reasoner, load_sampler, read_sampler_card, save_reasoner
from tests.reasoners import gpt2_config, make_reasoner, random_model, reasoner_format, tokenizer
from tests.trainer.sampler.toys import toy_questions
from trainer.data.questions import Question, draws_of, load_questions
from trainer.sampler.episodes import ReasonerEnvironment

SMALL = [
    "steps=2",
    "prompts=2",
    "group_size=4",
    "k=2",
    "validation_size=3",
    "validation_lanes=4",
    "validation_budget=2",
]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    import torch

    folder = tmp_path_factory.mktemp("reasoner")
    model = random_model(gpt2_config(), torch.float32)
    save_reasoner(folder, reasoner_format("coconut"), model, tokenizer())
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "data.jsonl"
    rows = [{"question": f"What is {n} and {n}?", "answer": 2 * n} for n in range(12)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def run(model, data, out, *settings: str, arguments: tuple[str, ...] = ()):
    options = [part for setting in (*SMALL, *settings) for part in ("--set", setting)]
    command = ["--model", str(model), "--data", str(data), "--out", str(out), *options, *arguments]
    result = CliRunner().invoke(app, command)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture(scope="module")
def finished(model, data, tmp_path_factory):
    """Folder of a finished run, and what the command printed."""
    out = tmp_path_factory.mktemp("finished") / "out"
    result = run(model, data, out, "validation_size=256")
    assert result.exit_code == 0, result.output
    return out, result.output


def test_a_run_leaves_a_sampler_that_loads_with_plots_log_and_card(model, finished):
    out, output = finished
    assert "all 2 steps are done" in output
    load_sampler(load_reasoner(model), SamplerSpec("gts"), out)
    card = read_sampler_card(out)
    assert card.training["config"]["steps"] == 2
    assert json.loads((out / "config.json").read_text()) == card.training["config"]
    kinds = [json.loads(line)["kind"] for line in (out / "log.jsonl").read_text().splitlines()]
    assert kinds == ["validation", "step", "step", "validation"]
    names = {path.name for path in (out / "plots").iterdir()}
    assert names == {
        f"{plot}.{kind}"
        for plot in ("reward", "accuracy", "thoughts", "policy")
        for kind in ("png", "svg")
    }
    accuracy = (out / "plots" / "accuracy.svg").read_text()
    for words in ("training step", "share of validation questions, %", "(pass@"):
        assert words in accuracy
    text = (out / "README.md").read_text()
    assert "# GTS sampler for" in text
    assert "`objective` = pass@k" in text


def test_the_log_has_the_usual_names(finished):
    lines = (finished[0] / "log.jsonl").read_text().splitlines()
    step = json.loads(lines[1])
    usual = {"approx_kl", "clipfrac", "entropy", "reward", "mean@1", "pass@N", "uniform_share"}
    assert usual | {"sigma", "snr", "kl", "ratio", "loss", "lr", "grad_norm"} <= step.keys()
    assert len(step["sigma"]) == len(step["snr"]) == 3


def test_a_finished_run_started_again_changes_no_weight(model, data, finished, tmp_path):
    out = shutil.copytree(finished[0], tmp_path / "out")
    (out / "sampler.safetensors").unlink()
    run(model, data, out, "validation_size=256")
    weights = (finished[0] / "sampler.safetensors").read_bytes()
    assert (out / "sampler.safetensors").read_bytes() == weights


def test_show_config_lists_every_setting(model, data, tmp_path):
    result = run(model, data, tmp_path / "out", arguments=("--show-config", "--preset", "paper"))
    assert "lr=0.0001" in result.output
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("", FormatError, "holds no rows"),
        ('{"question": "Why?"}\n', FormatError, "line 1"),
        ('{"question": "Why?", "answer": 3}\n', InputError, "has 1 row, and at least 2 are needed"),
    ],
)
def test_bad_data_is_a_clear_error_and_writes_nothing(model, tmp_path, text, error, message):
    path = tmp_path / "bad.jsonl"
    path.write_text(text)
    with pytest.raises(error, match=message):
        run(model, path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_bad_names_are_clear_errors(model, data, tmp_path):
    with pytest.raises(NotFoundError, match="nowhere"):
        run(tmp_path / "nowhere", data, tmp_path / "out")
    with pytest.raises(InputError, match="unknown preset 'best'"):
        run(model, data, tmp_path / "out", arguments=("--preset", "best"))
    with pytest.raises(InputError, match="unknown device 'abacus'"):
        run(model, data, tmp_path / "out", arguments=("--device", "abacus"))
    with pytest.raises(GtsError, match="sites must be at most the 3 thoughts"):
        run(model, data, tmp_path / "out", "sites=4")


def test_a_text_reasoner_has_no_thoughts_to_train_for():
    with pytest.raises(SpecError, match="no thoughts to perturb"):
        ReasonerEnvironment(make_reasoner("cot"))


def test_every_question_and_pass_has_its_own_seed_and_every_pass_all_questions():
    questions = toy_questions(6, [1])
    draws = [
        draw for step in range(3) for draw in draws_of(questions, step, 4, seed=0)
    ]  # two passes
    assert len({draw.seed for draw in draws}) == 12
    for part in (draws[:6], draws[6:]):
        assert {draw.question.id for draw in part} == {question.id for question in questions}
    assert draws_of(questions, 1, 4, seed=0) == draws[4:8]


def test_validation_questions_are_held_out(data):
    sets = load_questions(str(data), None, 5, seed=0)
    assert len(sets.train) == 7
    assert not {q.id for q in sets.train} & {q.id for q in sets.validation}
    assert all(isinstance(q.answer, Decimal) for q in sets.train)


def test_validation_takes_a_fifth_of_a_small_file(data, finished):
    sets = load_questions(str(data), None, 256, seed=0)
    assert (len(sets.train), len(sets.validation)) == (10, 2)
    out, output = finished
    assert "validation_size is 2, not 256" in output
    card = read_sampler_card(out)
    assert card.training["config"]["validation_size"] == 2
    assert card.training["questions"] == 10


def test_bad_data_is_refused_before_the_reasoner_is_loaded(model, tmp_path):
    """The folder is named but its weights can't be read: the data's error comes first."""
    broken = tmp_path / "reasoner"
    broken.mkdir()
    (broken / "reasoner.json").write_bytes((model / "reasoner.json").read_bytes())
    path = tmp_path / "one.jsonl"
    path.write_text('{"question": "Why?", "answer": 3}\n')
    with pytest.raises(InputError, match="has 1 row"):
        run(broken, path, tmp_path / "out")


def test_a_question_that_is_too_long_is_refused_before_training():
    environment = ReasonerEnvironment(make_reasoner())
    fine = Question("row:0", "1 + 1?", Decimal(2))
    environment.check([fine])
    with pytest.raises(InputError, match=r"'one one.*leave it out"):
        environment.check([fine, Question("row:1", "one " * 3000, Decimal(1))])


def test_splits_for_evaluation_are_refused_as_training_data():
    with pytest.raises(InputError, match="embedded:test"):
        load_questions("embedded:test", 9, 5, seed=0)


def test_episodes_hold_only_the_perturbed_thoughts():
    environment = ReasonerEnvironment(make_reasoner(), sites=2)
    heads = environment.new_heads(0.0).requires_grad_(False)
    draws = draws_of(toy_questions(2, [1]), 0, 2, seed=0)
    episodes = environment.sample(heads, draws, 4)
    assert episodes.contexts.shape == episodes.perturbations.shape == (2, 4, 2, 32)


def test_a_sampler_along_principal_directions_trains_and_loads(model, data, tmp_path):
    import torch

    out = tmp_path / "out"
    result = run(model, data, out, "directions=3")
    assert result.exit_code == 0, result.output
    reasoner = load_reasoner(model)
    sampler = load_sampler(reasoner, SamplerSpec("gts"), out)
    rows = sampler.heads.directions
    assert rows.shape == (3, 32)
    crossed = rows @ rows.T
    torch.testing.assert_close(crossed, torch.diag(crossed.diag()), atol=1e-4, rtol=0)
    assert "3 principal directions" in (out / "README.md").read_text()
    solved = reasoner.solve("What is 4 and 4?", budget=4, sampler=sampler)
    assert len(solved.trajectories) == 4


def test_directions_of_a_sampler_card_are_checked(model, finished, tmp_path):
    out = shutil.copytree(finished[0], tmp_path / "copy")
    card = json.loads((out / "sampler.json").read_text())
    for wrong in (-1, 33, 2.5, True):
        (out / "sampler.json").write_text(json.dumps({**card, "directions": wrong}))
        with pytest.raises(FormatError, match="directions"):
            read_sampler_card(out)


def test_a_run_that_starts_from_the_vocabulary_says_so_and_resumes(model, data, tmp_path):
    settings = ("directions=2", "start=vocabulary", "log_std_floor=-4", "log_std_bias=-0.4")
    out = tmp_path / "out"
    assert run(model, data, out, *settings).exit_code == 0
    assert "what the vocabulary head expects, times 0.67" in (out / "README.md").read_text()
    weights = (out / "sampler.safetensors").read_bytes()
    (out / "sampler.safetensors").unlink()
    run(model, data, out, *settings)
    assert (out / "sampler.safetensors").read_bytes() == weights
