"""The command, run in the tests' own process."""

import sys

import pytest

from cli.main import main


class Gts:
    """Runs `gts` in this process, as its console script does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def __call__(self, *words: object) -> tuple[int, str, str]:
        self._monkeypatch.setattr(sys, "argv", ["gts", *map(str, words)])
        with pytest.raises(SystemExit) as caught:
            main()
        out = self._capsys.readouterr()
        return int(caught.value.code or 0), out.out, out.err


@pytest.fixture
def gts(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Gts:
    return Gts(monkeypatch, capsys)
