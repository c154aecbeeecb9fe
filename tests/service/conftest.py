"""One real server for the tests that only ask it things."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from latent.store import save_reasoner
from tests.reasoners import make_counting_reasoner, make_reasoner
from tests.service.server import RunningServer, save_with_sampler


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
