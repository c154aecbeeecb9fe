"""`gts chat`: a real process, with lines from a pipe and from a terminal."""

import os
import pty
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.reasoners import QUESTIONS, make_counting_reasoner
from tests.service.server import RunningServer, save_with_sampler

GTS = Path(sys.executable).parent / "gts"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_with_sampler(
        make_counting_reasoner(), tmp_path_factory.mktemp("models") / "counting"
    )


def chat(*words: str | Path, lines: str) -> tuple[str, str]:
    done = subprocess.run(
        [GTS, "chat", "--seed", "3", *words],
        input=lines,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def test_each_line_is_a_question_and_a_bad_one_ends_nothing(folder: Path) -> None:
    lines = f"{QUESTIONS[0]}\n\n{'word ' * 400}\n{QUESTIONS[1]}\n"
    out, err = chat("-m", folder, lines=lines)
    assert out.count("sampler gts  vote majority  seed 3") == 2
    assert "counting loaded in" in err
    assert "too long" in err
    with RunningServer(folder) as server:
        there, _ = chat("--url", server.url, lines=lines)

    def votes(text: str) -> list[str]:
        return [line for line in text.splitlines() if "█" in line]

    assert votes(there) == votes(out) != []


def test_a_terminal_has_a_prompt_keeps_history_and_ctrl_c_drops_a_line(
    folder: Path, tmp_path: Path
) -> None:
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [GTS, "chat", "-m", folder, "--seed", "3"],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**os.environ, "OMP_NUM_THREADS": "1", "XDG_STATE_HOME": str(tmp_path)},
        # Ignored, and so inherited, where the tests run in the background of a shell.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    os.close(slave)
    shown = b""
    while not shown.endswith(b"> "):
        shown += os.read(master, 4096)
    os.write(master, b"a line that is dropped")
    while not shown.endswith(b"dropped"):
        shown += os.read(master, 4096)
    for _ in range(100):
        # Python's readline does not see a signal that comes just before it waits for a key.
        if shown.endswith(b"> "):
            break
        process.send_signal(signal.SIGINT)
        while select.select([master], [], [], 0.5)[0] and not shown.endswith(b"> "):
            shown += os.read(master, 4096)
    os.write(master, f"{QUESTIONS[0]}\nexit\n".encode())
    try:
        while piece := os.read(master, 4096):
            shown += piece
    except OSError:  # how Linux says that the other side is closed
        pass
    assert process.wait(120) == 0
    os.close(master)
    assert shown.count(b"seed 3") == 1
    assert QUESTIONS[0] in (tmp_path / "gts" / "history").read_text()
