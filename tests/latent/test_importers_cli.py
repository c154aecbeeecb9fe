import re
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from cli.import_ import app
from latent.errors import GtsError, InputError, NotFoundError
from latent.store import fingerprint, load_reasoner
from tests.latent.released import Coconut, Codi, decoder, write_base
from tests.reasoners import gpt2_config


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return write_base(tmp_path / "base", gpt2_config())


def run(*arguments: object) -> str:
    """Run the command; return what it printed, or raise what it raised."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if isinstance(result.exception, GtsError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def test_each_command_writes_a_folder_and_says_so_in_one_line(tmp_path: Path, base: Path) -> None:
    coconut, codi = Coconut(gpt2_config()), Codi(gpt2_config())
    for kind, module, options, thoughts in (
        ("coconut", coconut, ("--thoughts", 6, "--eos", 5, "--dtype", "bf16"), 6),
        ("codi", codi, ("--thoughts", 5, "--alpha", 2, "--eos", 4, "--keep-eos"), 5),
        ("cot", decoder(gpt2_config(), 0), ("--max-reasoning-tokens", 20), 0),
    ):
        torch.save(module.state_dict(), tmp_path / f"checkpoint_{kind}")
        out = tmp_path / kind
        text = run(kind, tmp_path / f"checkpoint_{kind}", "--base", base, "--out", out, *options)
        count = load_reasoner(out).parameter_count
        assert text == (
            f"{out}: {kind}, {count:,} parameters, K = {thoughts}, "
            f"fingerprint {fingerprint(out)[:12]}\n"
        )
    assert load_reasoner(tmp_path / "codi").format.eos_ids == (4,)
    assert load_reasoner(tmp_path / "codi").format.after_end_ids == (4,)
    assert load_reasoner(tmp_path / "coconut").format.eos_ids == (5,)
    assert load_reasoner(tmp_path / "cot").format.max_reasoning_tokens == 20


def test_what_was_assumed_is_printed(tmp_path: Path, base: Path) -> None:
    torch.save(Codi(gpt2_config()).state_dict(), tmp_path / "c")
    text = run("codi", tmp_path / "c", "--base", base, "--out", tmp_path / "out", "--thoughts", 6)
    assert text.splitlines()[0].startswith("note: LoRA's alpha is not in the file: 32 was assumed")


def test_a_folder_in_use_needs_force(tmp_path: Path, base: Path) -> None:
    torch.save(Coconut(gpt2_config()).state_dict(), tmp_path / "c")
    arguments = ("coconut", tmp_path / "c", "--base", base, "--out", tmp_path / "out")
    run(*arguments, "--thoughts", 6)
    with pytest.raises(InputError, match="--force"):
        run(*arguments, "--thoughts", 2)
    assert "K = 2" in run(*arguments, "--thoughts", 2, "--force")


def test_mistakes_reach_the_main_command_as_errors(tmp_path: Path, base: Path) -> None:
    with pytest.raises(InputError, match="--thoughts K"):
        run("coconut", tmp_path / "c", "--base", base, "--out", tmp_path / "out")
    with pytest.raises(NotFoundError, match="does not exist"):
        run("cot", tmp_path / "c", "--base", base, "--out", tmp_path / "out")


@pytest.mark.parametrize("kind", ["coconut", "codi", "cot"])
def test_help_shows_an_example(kind: str) -> None:
    plain = re.sub(r"\x1b\[[0-9;]*m", "", run(kind, "--help"))
    assert f"Example: gts import {kind} " in " ".join(plain.split())
