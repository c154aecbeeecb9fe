"""The flags and environment variables of `gts serve`, which are the fields of `Settings`."""

import re
from pathlib import Path

import pytest

import service.logs
import service.server
from latent.zoo import SERVED_MODELS
from service.settings import Settings
from tests.cli.conftest import Gts


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """Collect the settings that a server would start with."""
    found: list[Settings] = []
    monkeypatch.setattr(service.server, "serve", found.append)
    monkeypatch.setattr(service.logs, "set_up_logging", lambda _: None)
    return found


def test_without_flags_the_defaults_are_those_of_the_model(
    started: list[Settings], gts: Gts
) -> None:
    assert gts("serve")[0] == 0
    assert started == [Settings()]


def test_flags_come_before_the_environment(
    started: list[Settings], monkeypatch: pytest.MonkeyPatch, gts: Gts
) -> None:
    for name, value in {
        "GTS_MODEL": "one two",
        "GTS_DEVICE": "cpu cuda:1",
        "GTS_PORT": "9000",
        "GTS_LOG_QUESTIONS": "1",
        "GTS_TOKEN_FILE": "/tokens",
        "GTS_START_SECONDS": "1.5",
    }.items():
        monkeypatch.setenv(name, value)
    words = ("--port", "9001", "-m", "three", "-m", "four", "--protect-metrics")
    assert gts("serve", *words)[0] == 0
    (settings,) = started
    assert settings == Settings(
        models=("three", "four"),
        devices=("cpu", "cuda:1"),
        port=9001,
        log_questions=True,
        protect_metrics=True,
        token_file=Path("/tokens"),
        start_seconds=1.5,
    )
    assert gts("serve")[0] == 0
    assert started[1].models == ("one", "two")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--port", "many"), "--port"),
        (("--lane-limit", "3"), "--lane-limit"),
        (("--log-format", "xml"), "--log-format"),
        (
            ("--max-budget", "9", "--waiting-lanes", "8"),
            "max_budget 9 is more than waiting_lanes 8",
        ),
        (("--protect-metrics",), "token"),
        (("--compile", "--dtype", "int8"), "compile and dtype int8 do not go together"),
    ],
)
def test_a_bad_value_is_one_line_that_names_its_flag(
    started: list[Settings], gts: Gts, words: tuple[str, ...], said: str
) -> None:
    code, _, error = gts("serve", *words)
    assert code == 2
    (line,) = error.splitlines()
    assert said in line
    assert started == []


def test_the_help_has_every_flag_with_its_variable_and_its_default(
    monkeypatch: pytest.MonkeyPatch, gts: Gts
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    code, shown, _ = gts("serve", "--help")
    assert code == 0
    text = " ".join(re.sub("[│╭╮╰╯─]", " ", shown).split())
    flags = ("model", "device", "port", "start-seconds", "token-file", "protect-metrics")
    for flag in flags:
        assert f"--{flag} " in text
        assert f"[env var: GTS_{flag.upper().replace('-', '_')}]" in text
    for default in (", ".join(SERVED_MODELS), "127.0.0.1", "8000", "0.75", "600"):
        assert f"[default: {default}]" in text
    for field in Settings.model_fields.values():
        assert field.description
        assert field.description in text
