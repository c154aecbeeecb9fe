"""Progress in a log: plain lines, not too many of them."""

import pytest

from trainer.runs.progress import Progress


def test_every_step_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(2, 0) as progress:
        progress.show(1, {"loss": 0.5})
        progress.show(2, {"loss": 0.25})
    assert capsys.readouterr().out == "1/2 loss=0.5\n2/2 loss=0.25\n"


def test_lines_keep_their_distance_but_the_last_is_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Progress(9, 0, line_seconds=3600) as progress:
        for step in range(1, 10):
            progress.show(step, {})
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["1/9", "9/9"]
