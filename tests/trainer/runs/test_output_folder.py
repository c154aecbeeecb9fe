"""A command never writes into a folder that holds something else or that another process uses."""

from pathlib import Path

import pytest

from latent.errors import InputError
from trainer.runs.output_folder import claimed


@pytest.mark.parametrize(
    ("mark", "held"),
    [
        ("reasoner.json", "a reasoner"),
        ("checkpoint/sampler.json", "a sampler's training"),
        ("checkpoint/backbone.json", "a backbone's training"),
        ("checkpoint/checkpoint.json", "a sampler's training"),
        ("checkpoint.pt", "a backbone's training"),
        ("parts", "an evaluation"),
    ],
)
def test_a_folder_that_holds_something_else_is_refused(
    tmp_path: Path, mark: str, held: str
) -> None:
    (tmp_path / mark).parent.mkdir(exist_ok=True)
    (tmp_path / mark).touch()
    with (
        pytest.raises(InputError, match=f"holds {held}; use another --out"),
        claimed(tmp_path, "a comparison"),
    ):
        pytest.fail("the folder is not ours")


def test_a_run_goes_on_in_its_own_folder(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "sampler.json").touch()
    with claimed(tmp_path, "a sampler's training"):
        pass


def test_two_runs_do_not_write_into_one_folder_at_once(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with claimed(tmp_path / "run", "an evaluation"):
        with (
            pytest.raises(InputError, match="another run is writing"),
            claimed(tmp_path / "run", "an evaluation"),
        ):
            pytest.fail("the folder is taken")
        with claimed(tmp_path / "run", "an evaluation", is_first=False):
            pass  # the other ranks of the same run
    with claimed(tmp_path / "run", "an evaluation"):
        pass


def test_a_folder_that_stayed_empty_goes_away_again(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with claimed(out, "an evaluation"):
        assert out.is_dir()
    assert not out.exists()
    with claimed(out, "an evaluation"):
        (out / "result").touch()
    assert (out / "result").exists()


def test_what_cannot_be_a_folder_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for out, said in ((tmp_path / "file", "is a file"), (Path("/proc/no"), "can't be written")):
        with pytest.raises(InputError, match=said), claimed(out, "an evaluation"):
            pytest.fail("there is no such folder")
