"""Takes the pictures of the playground that README and docs show, of the embedded model.

    python -m tests.browser.screenshots

Needs what .ci/browser installs; with the font Inter (Debian: fonts-inter) they look as they do there.
"""

from pathlib import Path

from playwright.sync_api import Browser, Locator, Page, expect

from tests.browser.chromium import ask, chromium
from tests.service.server import RunningServer

IMAGES = Path(__file__).parents[2] / "docs" / "images"
SEED = "7"
MARGIN = 12


def main() -> None:
    """Take all of them."""
    with RunningServer(Path("coconut-tiny")) as server, chromium() as browser:
        page = opened(browser, server.url, "light", 1180)
        page.mouse.move(0, 0)
        cards = [page.locator(".columns > .card").nth(number) for number in (0, 1)]
        shoot(page, "playground", page.locator(".top"), *cards)
        shoot(page, "playground-thoughts", card(page, "thoughts-title"))
        shoot(page, "playground-compare", card(page, "compare-title"))
        phone = opened(browser, server.url, "dark", 400)
        shoot(phone, "playground-phone", phone.locator(".columns > .card").nth(1))


def opened(browser: Browser, url: str, scheme: str, width: int) -> Page:
    """Open the page and fill all of it."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, reduced_motion="reduce"
    )
    page = context.new_page()
    page.goto(f"{url}/")
    page.locator("#examples button").nth(2).click()
    question = page.get_by_label("Question", exact=True).input_value()
    page.get_by_text("Seed, deadline and more").click()
    page.get_by_label("Seed", exact=True).fill(SEED)
    page.get_by_text("Seed, deadline and more").click()
    ask(page, question, budget=64)
    page.get_by_role("button", name="See the thoughts").click()
    expect(page.locator("#paths svg")).to_be_visible()
    page.get_by_label("Trajectory", exact=True).select_option("2")
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(page.locator("#comparison .sampler")).to_have_count(3)
    return page


def card(page: Page, title: str) -> Locator:
    """The card with this heading."""
    return page.locator(f"section[aria-labelledby={title}]")


def shoot(page: Page, name: str, *parts: Locator) -> None:
    """Save the rectangle around some parts of the page."""
    boxes = [box for part in parts if (box := part.bounding_box()) is not None]
    scrolled = page.evaluate("[scrollX, scrollY]")
    left = min(box["x"] for box in boxes) + scrolled[0] - MARGIN
    top = min(box["y"] for box in boxes) + scrolled[1] - MARGIN
    right = max(box["x"] + box["width"] for box in boxes) + scrolled[0] + MARGIN
    bottom = max(box["y"] + box["height"] for box in boxes) + scrolled[1] + MARGIN
    left, top = max(left, 0), max(top, 0)
    clip = {"x": left, "y": top, "width": right - left, "height": bottom - top}
    path = IMAGES / f"{name}.png"
    page.screenshot(path=path, full_page=True, clip=clip)  # type: ignore[arg-type]
    print(f"{path.name}: {path.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main()
