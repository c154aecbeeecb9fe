"""The servers of the service's tests, and one Chromium for all of them."""

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from tests.service.conftest import faulty, folder, narrow, server, text_folder

__all__ = ["faulty", "folder", "narrow", "server", "text_folder"]

# Without playwright there is nothing to collect; .ci/browser installs it.
collect_ignore_glob = [] if find_spec("playwright") else ["test_*.py"]


@pytest.fixture(scope="session")
def browser() -> Iterator[object]:
    from tests.browser.chromium import chromium

    with chromium() as running:
        yield running


@pytest.fixture
def tab(browser: object) -> Iterator[object]:
    """A fresh tab; at the end nothing may have been asked from elsewhere, and no error unexpected."""
    from tests.browser.chromium import Tab

    context = browser.new_context(viewport={"width": 1280, "height": 900})  # type: ignore[attr-defined]
    context.set_default_timeout(60_000)
    opened = Tab(context.new_page())
    yield opened
    context.close()
    assert opened.strangers == []
    assert opened.errors == []
