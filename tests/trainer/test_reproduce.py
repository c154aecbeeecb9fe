"""The embedded models were trained by the commands that `make train` runs."""

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from latent.folders import sampler_folders
from latent.verifier_file import CARD_NAME, folder_verifier, read_verifier_card
from latent.zoo import embedded_models

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def planned() -> str:
    """Commands that make would run if nothing had been built."""
    command = ["make", "--dry-run", "--always-make", "--file", "trainer/reproduce.mk"]
    command += ["all", "smollm2", "DATA=data"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return found.stdout


def trainings(text: str) -> list[dict[str, Any]]:
    """Options of every `gts train …` command in a text."""
    return [options(command) for command in re.findall(r"gts train\s.*?(?= > )", text)]


def options(command: str) -> dict[str, Any]:
    words = shlex.split(command)[2:]
    flags = [place for place, word in enumerate(words) if word.startswith("--")]
    found: dict[str, Any] = {"kind": words[: flags[0]]}
    for start, end in zip(flags, [*flags[1:], len(words)], strict=True):
        found.setdefault(words[start], []).extend(words[start + 1 : end])
    found.pop("--threads", None)  # changes no more than rounding
    found["--set"] = sorted(found.get("--set", []))
    return found


def test_every_embedded_reasoner_was_trained_by_these_commands(planned: str) -> None:
    for name, folder in embedded_models().items():
        reasoner = json.loads((folder / "reasoner.json").read_text())
        if name == "smollm2-cot":  # it was trained before `make train-smollm2` was there
            continue
        runs = reasoner["provenance"]["runs"]
        assert runs
        for run in runs:
            assert options(run["command"]) in trainings(planned)


def test_every_embedded_sampler_was_trained_by_these_commands_and_none_is_missing(
    planned: str,
) -> None:
    embedded = [
        options(json.loads((sampler / "sampler.json").read_text())["training"]["command"])
        for folder in embedded_models().values()
        for sampler in sampler_folders(folder).values()
    ]
    wanted = [one for one in trainings(planned) if one["kind"] == ["sampler"]]
    assert sorted(embedded, key=str) == sorted(wanted, key=str)


def test_every_embedded_verifier_was_trained_by_these_commands_and_none_is_missing(
    planned: str,
) -> None:
    embedded = [
        options(read_verifier_card(folder_verifier(folder)).training["command"])
        for folder in embedded_models().values()
        if (folder_verifier(folder) / CARD_NAME).is_file()
    ]
    assert embedded == [one for one in trainings(planned) if one["kind"] == ["verifier"]]
