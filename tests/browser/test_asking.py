"""The playground in a real Chromium: a question asked, streamed, repeated, refused, interrupted."""

import json
import re
import threading
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.browser.chromium import REFUSED, Tab, ask
from tests.reasoners import QUESTIONS
from tests.service.server import TOKEN, RunningServer, wait_for

pytestmark = pytest.mark.browser

QUESTION = QUESTIONS[0]


def bars(page: Page) -> list[str]:
    return page.locator(".bars li").all_inner_texts()


def expect_answer(page: Page) -> None:
    expect(page.get_by_role("button", name="Same again")).to_be_visible()


def test_candidates_grow_as_rounds_arrive_and_the_same_seed_gives_the_same_votes(
    faulty: RunningServer, tab: Tab, tmp_path: Path
) -> None:
    page, go = tab.open(faulty.url), tmp_path / "go"
    ask(page, f"first until {go}", budget=256)
    progress = page.locator("#progress-text")
    expect(progress).to_have_text(re.compile(r"^[1-9]\d* of 256 trajectories, .* leads$"))
    assert bars(page), "the first round is drawn while the others wait"
    expect(page.get_by_role("button", name="Cancel")).to_be_visible()
    go.touch()
    expect_answer(page)
    expect(page.locator("#answer .facts")).to_contain_text("256 of 256")
    expect(page.locator(".leader")).to_contain_text("not calibrated")
    votes = bars(page)
    page.get_by_label("Question", exact=True).fill("another one, that is not asked")
    page.get_by_role("button", name="Same again").click()
    expect(page.locator(".note")).to_have_text("✓ same votes as before")
    assert bars(page) == votes
    expect(page.get_by_label("Seed", exact=True)).to_have_value("")


def test_a_worker_that_is_killed_in_between_costs_nothing_but_time(
    faulty: RunningServer, tab: Tab, tmp_path: Path
) -> None:
    page, go = tab.open(faulty.url), tmp_path / "go"
    before = faulty.metric("gts_worker_restarts_total")
    ask(page, f"until {go}", budget=32)
    wait_for(lambda: faulty.metric("gts_running_lanes"))
    faulty.kill_worker()
    wait_for(lambda: faulty.metric("gts_worker_restarts_total") > before)
    go.touch()
    expect_answer(page)
    expect(page.locator("#answer .facts")).to_contain_text("32 of 32")


def test_a_question_can_be_cancelled(faulty: RunningServer, tab: Tab, tmp_path: Path) -> None:
    page, go = tab.open(faulty.url), tmp_path / "go"
    cancelled = faulty.metric("gts_cancelled_total")
    ask(page, f"until {go}")
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("#answer")).to_have_text("Cancelled.")
    go.touch()
    wait_for(lambda: faulty.metric("gts_cancelled_total") > cancelled)


def test_the_copied_calls_give_the_same_answer(server: RunningServer, tab: Tab) -> None:
    page = tab.open(server.url)
    ask(page, f'{QUESTION} It\'s "so" \\ many?', budget=16)
    expect_answer(page)
    curl, python = page.locator("#calls code").all_inner_texts()
    body = json.loads(curl.partition(" -d ")[2][1:-1].replace("'\\''", "'"))
    again = httpx.post(f"{server.url}/solve", json=body, timeout=60).json()
    assert again["answer"] == page.locator("#winner").inner_text()
    printed: list[str] = []
    exec(python, {"print": lambda *words: printed.extend(map(str, words))})
    assert printed[0] == again["answer"]


def test_a_server_with_tokens_asks_for_one_and_never_shows_it(
    narrow: RunningServer, tab: Tab
) -> None:
    page = tab.open(narrow.url)
    token = page.get_by_label("Bearer token")
    expect(token).to_be_focused()
    token.fill("wrong")
    token.press("Enter")
    expect(page.locator("#token-hint")).to_contain_text("does not know this token")
    token.fill(TOKEN)
    token.press("Enter")
    expect(page.get_by_label("Model", exact=True)).to_have_value("counting")
    ask(page, QUESTION, budget=16)
    expect_answer(page)
    calls = " ".join(page.locator("#calls code").all_inner_texts())
    assert "GTS_TOKEN" in calls
    assert TOKEN not in page.content()
    assert page.evaluate("localStorage.length") == 0
    refused = [error for error in tab.errors if error.startswith(REFUSED)]
    assert len(refused) == 2
    tab.errors.clear()


def test_an_overload_says_how_long_to_wait_and_a_deadline_that_it_passed(
    narrow: RunningServer, tab: Tab, tmp_path: Path
) -> None:
    page, go = tab.open(narrow.url), tmp_path / "go"
    page.get_by_label("Bearer token").fill(TOKEN)
    page.get_by_label("Bearer token").press("Enter")
    expect(page.get_by_label("Model", exact=True)).to_have_value("counting")

    def crowd(budget: int) -> None:
        body = {"question": f"until {go}", "budget": budget}
        httpx.post(f"{narrow.url}/solve", json=body, headers=narrow.headers, timeout=120)

    # One round of 16 runs and one may be sent ahead: of these 40 lanes 8 to 24 wait, and leave room
    # for a budget of 1 but not for one of 32.
    others = [threading.Thread(target=crowd, args=(budget,)) for budget in (32, 8)]
    others[0].start()
    wait_for(lambda: narrow.metric("gts_open_questions") == 1)
    wait_for(lambda: narrow.metric("gts_waiting_lanes") <= 16)
    others[1].start()
    wait_for(lambda: narrow.metric("gts_open_questions") == 2)
    ask(page, QUESTION, budget=32)
    error = page.locator("#error")
    expect(error).to_contain_text("The server is busy")
    expect(error).to_contain_text(re.compile(r"Try again in \d+ second|You can try again now"))
    page.get_by_text("Seed, deadline and more").click()
    page.get_by_label("Deadline in milliseconds").fill("1")
    ask(page, QUESTION, budget=1)
    expect(error).to_contain_text("The deadline passed")
    go.touch()
    for other in others:
        other.join()
    page.get_by_label("Deadline in milliseconds").fill("")
    error.get_by_role("button", name="Ask again").click()
    expect_answer(page)
    assert all(each.startswith(REFUSED) for each in tab.errors)
    tab.errors.clear()


def test_a_wrong_field_is_named_and_gets_the_focus(server: RunningServer, tab: Tab) -> None:
    page = tab.open(server.url)
    page.get_by_text("Seed, deadline and more").click()
    page.get_by_label("Seed", exact=True).fill("seven")
    ask(page, QUESTION)
    expect(page.locator("#error")).to_contain_text("The seed must be a whole number")
    expect(page.get_by_label("Seed", exact=True)).to_be_focused()
    page.get_by_label("Seed", exact=True).fill("7")
    ask(page, " ")
    expect(page.locator("#error")).to_contain_text("Question is empty")
    expect(page.get_by_label("Question", exact=True)).to_have_attribute("aria-invalid", "true")
    (refused,) = tab.errors
    assert refused.startswith(REFUSED)
    tab.errors.clear()


def test_a_server_that_is_gone_is_said_in_words(folder: Path, tab: Tab) -> None:
    with RunningServer(folder) as short:
        page = tab.open(short.url)
        expect(page.get_by_label("Model", exact=True)).to_have_value("counting")
    ask(page, QUESTION)
    expect(page.locator("#error")).to_contain_text("The server cannot be reached")
    assert all("ERR_CONNECTION_REFUSED" in each for each in tab.errors)
    tab.errors.clear()
