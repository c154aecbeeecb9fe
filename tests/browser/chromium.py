"""A real headless Chromium, and a page in it that notes whatever goes wrong."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from playwright.sync_api import Browser, Page, expect, sync_playwright

expect.set_options(timeout=60_000)  # only ends a test that has failed

# Chromium writes this itself for every answer that is not a 2xx.
REFUSED = "Failed to load resource: the server responded with a status of"


@contextmanager
def chromium() -> Iterator[Browser]:
    """Debian's Chromium, driven by playwright."""
    path = shutil.which("chromium")
    assert path is not None, "install chromium: .ci/browser does"
    with sync_playwright() as driver:
        # Root has no sandbox of its own in a container.
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@dataclass
class Tab:
    """A page, with the errors of its console and the addresses outside that it asked for."""

    page: Page
    errors: list[str] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)

    def open(self, url: str) -> Page:
        """Open a server's page and listen to it."""
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", self._heard)
        self.page.on("request", lambda asked: self._asked(asked.url, url))
        self.page.goto(f"{url}/")
        return self.page

    def _heard(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    def _asked(self, address: str, own: str) -> None:
        if not address.startswith(own):
            self.strangers.append(address)


def ask(page: Page, question: str, budget: int = 32) -> None:
    """Fill the form and press the button; the slider's steps are powers of two."""
    button = page.get_by_role("button", name="Ask", exact=True)
    expect(button).to_be_enabled()  # the models are there, and have set their defaults
    page.get_by_label("Question", exact=True).fill(question)
    page.get_by_label("Budget", exact=True).fill(str(budget.bit_length() - 1))
    button.click()
