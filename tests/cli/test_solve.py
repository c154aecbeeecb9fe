"""`gts` as typed: what it prints, and how it refuses."""

import gc
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from latent.errors import NotFoundError
from latent.folders import SamplerCard, fingerprint
from latent.samplers import GaussianThoughtSampler
from latent.store import save_reasoner, save_sampler
from service.api.schemas import SolveResponse
from tests.cli.conftest import Gts
from tests.reasoners import QUESTIONS, make_reasoner


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    reasoner = make_reasoner("coconut", "gpt2", dtype=torch.float32)
    folder = tmp_path_factory.mktemp("models") / "random-coconut"
    save_reasoner(folder, reasoner.format, reasoner._model, reasoner.tokenizer)
    card = SamplerCard("gts", 32, fingerprint(folder))
    for name in ("default", "other"):
        save_sampler(folder / "samplers" / name, GaussianThoughtSampler(32), card)
    return folder


@pytest.fixture(scope="module")
def text_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    reasoner = make_reasoner("cot", "gpt2", dtype=torch.float32)
    folder = tmp_path_factory.mktemp("models") / "random-cot"
    save_reasoner(folder, reasoner.format, reasoner._model, reasoner.tokenizer)
    return folder


def test_solve_prints_a_table_with_bars(gts: Gts, folder: Path) -> None:
    code, out, err = gts("solve", QUESTIONS[0], "-n", 8, "--model", folder, "--seed", 3)
    assert (code, err) == (0, "")
    assert "answer" in out
    assert "█" in out
    assert "seed 3" in out
    assert "random-coconut" in out


def test_solve_json_is_the_services_schema_and_reproducible(gts: Gts, folder: Path) -> None:
    words = (
        "solve",
        QUESTIONS[0],
        "-n",
        8,
        "--model",
        folder,
        "--seed",
        3,
        "--json",
        "--trajectories",
    )
    first, second = (SolveResponse.model_validate_json(gts(*words)[1]) for _ in range(2))
    assert first.candidates == second.candidates
    assert first.trajectories == second.trajectories
    assert first.sampler == "gts"
    assert first.budget_used == first.usage.trajectories == 8
    assert first.usage.thoughts == 24
    assert sum(candidate.votes for candidate in first.candidates) == 8
    assert [t.index for t in first.trajectories or ()] == list(range(8))


def test_a_panel_shows_who_voted_and_what_each_member_did(gts: Gts) -> None:
    words = ("solve", QUESTIONS[0], "-n", 6, "--model", "panel-tiny", "--seed", 3)
    code, out, err = gts(*words)
    assert (code, err) == (0, "")
    assert "voters" in out
    assert "right with probability" in out
    assert "cot-tiny:token:1.0" in out
    code, _, err = gts(*words, "--sampler", "gts")
    assert (code, err.count("leave --sampler out")) == (2, 1)


def test_a_seed_is_drawn_and_told_when_absent(gts: Gts, folder: Path) -> None:
    words = ("solve", QUESTIONS[0], "-n", 2, "--model", folder, "--json")
    seeds = {json.loads(gts(*words)[1])["seed"] for _ in range(2)}
    assert len(seeds) == 2


def test_a_budget_of_one_is_the_deterministic_trajectory_for_every_sampler(
    gts: Gts, folder: Path
) -> None:
    texts = set()
    for sampler in ("deterministic", "gts", "gaussian:2", "dropout:0.5"):
        out = gts(
            "solve", QUESTIONS[0], "-n", 1, "-m", folder, "-s", sampler, "--trajectories", "--json"
        )[1]
        response = json.loads(out)
        assert response["trajectories"][0]["index"] == -1
        texts.add(response["trajectories"][0]["text"])
    assert len(texts) == 1


def test_a_budget_beyond_all_bounds_is_said(gts: Gts, folder: Path) -> None:
    code, _, said = gts("solve", QUESTIONS[0], "-n", 10**11, "-m", folder)
    assert code == 2
    assert said.startswith("gts: budget must be 1 to 65536")


def test_the_deterministic_sampler_votes_once_whatever_the_budget(gts: Gts, folder: Path) -> None:
    words = ("-n", 4, "-m", folder, "-s", "deterministic", "--trajectories", "--json")
    response = json.loads(gts("solve", QUESTIONS[0], *words)[1])
    assert [t["index"] for t in response["trajectories"]] == [-1]
    assert response["budget_used"] == 1


def test_include_deterministic_stays_inside_the_budget(gts: Gts, folder: Path) -> None:
    words = ("-n", 4, "-m", folder, "--include-deterministic", "--trajectories", "--json")
    response = json.loads(gts("solve", QUESTIONS[0], *words)[1])
    assert [t["index"] for t in response["trajectories"]] == [-1, 0, 1, 2]


def test_a_text_reasoner_samples_tokens_by_default(gts: Gts, text_folder: Path) -> None:
    response = json.loads(gts("solve", QUESTIONS[0], "-n", 4, "-m", text_folder, "--json")[1])
    assert response["sampler"] == "token:1.0"
    assert response["usage"]["thoughts"] == 0


@pytest.mark.parametrize("model", ["folder", "missing"])
def test_garbage_is_collected_again_after_loading(gts: Gts, folder: Path, model: str) -> None:
    where = folder if model == "folder" else folder / "missing"
    code, _, _ = gts("solve", QUESTIONS[0], "-n", 2, "-m", where)
    assert code == (0 if model == "folder" else 2)
    assert gc.isenabled()


def test_models_lists_a_folder_with_its_samplers(gts: Gts, folder: Path) -> None:
    code, out, _ = gts("models", folder, "--json")
    assert "reproducible" not in out
    mine = next(model for model in json.loads(out) if model["name"] == "random-coconut")
    assert code == 0
    assert mine["kind"] == "coconut"
    assert mine["thoughts"] == 3
    assert sorted(mine["samplers"]) == ["default", "other"]
    assert mine["fingerprint"] == fingerprint(folder)
    assert "gts:other" in gts("models", folder)[1]
    panel = next(model for model in json.loads(out) if model["name"] == "panel-tiny")
    members = ["coconut-tiny:gts@auto", "codi-tiny:gts@auto", "cot-tiny:token:1.0"]
    assert [each["member"] for each in panel["members"]] == members


def test_models_leaves_out_a_panel_whose_reasoners_have_no_base(
    gts: Gts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(folder: Path) -> None:
        raise NotFoundError(f"{folder.name}: its base is not installed")

    monkeypatch.setattr("latent.folders.check_base", refuse)
    code, out, err = gts("models", "--json")
    assert (code, json.loads(out)) == (0, [])
    assert "not listed: coconut-tiny: its base is not installed" in err


def test_models_checks_what_a_seed_promises_when_told_to(
    gts: Gts, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for embedded in ("models", "panels"):  # checking these takes long
        monkeypatch.setattr(f"latent.zoo.embedded_{embedded}", dict)
    listed = json.loads(gts("models", folder, "--check", "--json")[1])
    assert listed[0]["reproducible"] in ("bits", "tokens")
    assert listed[0]["reproducible_reason"]
    assert listed[0]["reproducible"] in gts("models", folder, "--check")[1]


@pytest.mark.parametrize("words", [("models",), ("--help",), ("solve", "--help")])
def test_what_needs_no_model_imports_neither_torch_nor_transformers(words: tuple[str, ...]) -> None:
    code = (
        "import contextlib, sys\n"
        "from cli.main import main\n"
        "with contextlib.suppress(SystemExit): main()\n"
        "sys.exit(','.join({'torch', 'transformers'} & sys.modules.keys()) or None)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("",), "question is empty"),
        (("  \n",), "question is empty"),
        (("word " * 500,), "too long"),
        (("\udcff",), "not Unicode text"),
        (("Q?", "-n", "0"), "budget must be 1 to"),
        (("Q?", "-n", "-3"), "budget must be 1 to"),
        (("Q?", "-s", "magic"), "unknown sampler 'magic'"),
        (("Q?", "-s", "dropout:2"), "0 ≤ p < 1"),
        (("Q?", "-s", "token:1.0"), "thinks in hidden states"),
        (("Q?", "-s", "gts:nobody"), "no sampler 'nobody'"),
        (("Q?", "-s", "gts:./nowhere"), "has no sampler"),
        (("Q?", "--vote", "loudest"), "unknown vote"),
        (("Q?", "--seed", "-1"), "seed must be between"),
        (("Q?", "--device", "tpu"), "unknown device"),
        (("Q?", "--device", "cuda:99"), "CUDA devices"),
        (("Q?", "--dtype", "int4"), "unknown dtype"),
        (("Q?", "-m", "/no/such/folder"), "neither embedded nor a folder"),
        (("Q?", "-m", "/tmp"), "has no reasoner.json"),
    ],
)
def test_bad_input_is_one_clear_line_and_exit_code_2(
    gts: Gts, folder: Path, words: tuple[str, ...], said: str
) -> None:
    model = () if "-m" in words else ("-m", str(folder))
    code, out, err = gts("solve", *words, *model)
    assert code == 2
    assert out == ""
    assert said in err
    assert len(err.strip().splitlines()) == 1
    assert err.startswith("gts: ")


@pytest.mark.parametrize(
    ("words", "said"),
    [(("-s", "gaussian"), "reasons in text"), (("--vote", "centroid"), "needs thoughts")],
)
def test_what_needs_thoughts_is_refused_of_a_text_reasoner(
    gts: Gts, text_folder: Path, words: tuple[str, ...], said: str
) -> None:
    code, _, err = gts("solve", "Q?", "-m", text_folder, *words)
    assert code == 2
    assert said in err


def test_the_console_script_reads_standard_input_and_prints_plain_text(folder: Path) -> None:
    script = Path(sys.executable).parent / "gts"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [script, "solve", "-", "-n", "4", "-m", folder, "--seed", "1"],
        input=QUESTIONS[0],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "\x1b[" not in done.stdout
    assert done.stderr == ""


def test_help_shows_examples_and_version_works(gts: Gts) -> None:
    assert "gts solve" in gts("solve", "--help")[1]
    assert gts("--version")[1].startswith("gts ")
    assert gts("frobnicate")[0] == 2
