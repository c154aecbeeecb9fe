"""Real servers that tests share: one that only answers, one that fails on demand, one with tokens."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from latent.store import save_reasoner
from tests.reasoners import make_counting_reasoner, make_reasoner
from tests.service.server import TOKEN, RunningServer, save_with_sampler


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_with_sampler(
        make_counting_reasoner(), tmp_path_factory.mktemp("served") / "counting"
    )


@pytest.fixture(scope="session")
def text_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    reasoner = make_reasoner("cot")
    folder = tmp_path_factory.mktemp("served") / "texting"
    save_reasoner(folder, reasoner.format, reasoner._model, reasoner.tokenizer)
    return folder


@pytest.fixture(scope="session")
def server(folder: Path, text_folder: Path) -> Iterator[RunningServer]:
    with RunningServer(folder, text_folder) as running:
        yield running


@pytest.fixture
def http(server: RunningServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client


@pytest.fixture(scope="session")
def faulty(folder: Path) -> Iterator[RunningServer]:
    """A server whose worker fails as questions ask it to; it may be restarting its worker."""
    with RunningServer(folder, is_faulty=True, flags=("--lane-limit", "64")) as running:
        yield running


@pytest.fixture(scope="session")
def narrow(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server that asks for a token, also for its metrics, and lets few lanes wait."""
    tokens = tmp_path_factory.mktemp("secrets") / "tokens"
    tokens.write_text(f"# ours\n{TOKEN}\n  # rotated weekly\nsecond-token\n")
    limits = ("--waiting-lanes", "32", "--max-budget", "32", "--lane-limit", "16")
    flags = (*limits, "--token-file", str(tokens), "--protect-metrics")
    with RunningServer(folder, flags=flags, is_faulty=True, token=TOKEN) as running:
        yield running
