"""The servers of the service's tests, and one Chromium for all of them."""

from collections.abc import Iterator

import pytest

from tests.service.conftest import faulty, folder, narrow, server, text_folder

__all__ = ["faulty", "folder", "narrow", "server", "text_folder"]

chromium = pytest.importorskip("tests.browser.chromium", reason="pip install -e '.[browser]'")


@pytest.fixture(scope="session")
def browser() -> Iterator[object]:
    with chromium.chromium() as running:
        yield running


@pytest.fixture
def tab(browser: object) -> Iterator[object]:
    """A fresh tab; at the end nothing may have been asked from elsewhere, and no error unexpected."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})  # type: ignore[attr-defined]
    context.set_default_timeout(60_000)
    opened = chromium.Tab(context.new_page())
    yield opened
    context.close()
    assert opened.strangers == []
    assert opened.errors == []
