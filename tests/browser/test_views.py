"""The thoughts and the comparison in a real Chromium, on any screen, for everyone, as text only."""

import json
import re
import shutil
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, Route, expect

from latent.calibration import Calibrations
from latent.calibration_file import FILE_NAME, write_calibrations
from latent.familiarity import make_reference
from latent.folders import fingerprint, weights_digest
from tests.browser.chromium import Tab, ask
from tests.calibrations import make_calibration
from tests.reasoners import QUESTIONS
from tests.service.server import RunningServer

pytestmark = pytest.mark.browser

QUESTION = QUESTIONS[0]
MARKUP = "<img src=x onerror=alert(1)><b>7</b>"
# A response, but for its answer and candidates.
RESULT = {
    "model": "counting",
    "sampler": "gts",
    "seed": 1,
    "budget": 2,
    "budget_used": 2,
    "stop_reason": "budget",
    "confidence": 1,
    "confidence_kind": "calibrated",
    "vote": "majority",
    "timing_ms": {"queue": 1, "prefill": 1, "thoughts": 1, "decode": 1, "total": 4},
}


def fulfil(page: Page, result: dict[str, object]) -> None:
    """Answer every question of the page with this."""

    def answer(route: Route) -> None:
        text = json.dumps(result)
        if json.loads(route.request.post_data or "{}").get("stream"):
            text = f"event: result\ndata: {text}\n\n"
        route.fulfill(body=text)

    page.route("**/solve", answer)


def see_all(page: Page) -> None:
    """Ask, see the thoughts, compare samplers."""
    ask(page, QUESTION, budget=16)
    page.get_by_role("button", name="See the thoughts").click()
    expect(page.locator("#paths svg")).to_be_visible()
    page.get_by_label("True answer").fill("7")
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(page.locator("#comparison .sampler")).to_have_count(3)


def serious(page: Page) -> list[str]:
    """What axe finds that is serious or critical."""
    found = Axe().run(page).response["violations"]
    return [
        f"{each['id']}: {node['html']}"
        for each in found
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]


def test_thoughts_are_drawn_and_can_be_read_with_the_keyboard(
    server: RunningServer, tab: Tab
) -> None:
    page = tab.open(server.url)
    ask(page, QUESTION, budget=16)
    page.get_by_role("button", name="See the thoughts").click()
    plot = page.locator("#paths svg")
    expect(plot.locator(".sampled")).to_have_count(16)
    expect(plot.locator(".deterministic")).to_have_count(1)
    expect(plot.locator(".median path")).to_have_count(3)
    chosen = page.get_by_label("Trajectory", exact=True)
    chosen.focus()
    chosen.press("ArrowDown")
    expect(page.locator("#trajectory-facts")).to_contain_text("Log-probability")
    assert chosen.evaluate("list => list.selectedOptions[0].text").startswith("trajectory 0")
    expect(page.locator("#readings tbody tr")).to_have_count(3)
    expect(page.locator("#readings tbody td").first).to_have_text(re.compile(r".+\d%$"))
    plot.locator(".sampled").nth(5).locator("circle").first.hover(force=True)
    expect(plot.locator(".tip")).to_contain_text("log-probability")
    page.get_by_role("button", name="Ask", exact=True).click()
    expect(plot.locator(".sampled")).to_have_count(16)  # a new question shows its own by itself


def test_what_a_text_reasoner_wrote_can_be_read(server: RunningServer, tab: Tab) -> None:
    page = tab.open(server.url)
    page.get_by_label("Model", exact=True).select_option("texting")
    expect(page.get_by_label("Sampler", exact=True)).to_have_value("token:1.0")
    ask(page, QUESTION, budget=4)
    expect(page.get_by_role("button", name="Same again")).to_be_visible()
    expect(page.locator("#thoughts-hint")).to_contain_text("in 4 trajectories")
    counts = [
        re.search(r"(\d+) trajector", text) for text in page.locator("#texts p").all_inner_texts()
    ]
    assert sum(int(found[1]) for found in counts if found) == 4
    assert "include" not in page.locator("#calls").inner_text()
    expect(page.get_by_role("button", name="See the thoughts")).to_be_hidden()
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(page.locator("#comparison .sampler")).to_have_count(2)


def test_samplers_are_compared_two_to_four_of_them(server: RunningServer, tab: Tab) -> None:
    page = tab.open(server.url)
    see_all(page)
    cards = page.locator("#comparison .sampler")
    assert [card.split("\n")[0] for card in cards.all_inner_texts()] == [
        "gts",
        "gaussian:1.0",
        "dropout:0.1",
    ]
    expect(cards.first.get_by_role("img")).to_have_count(3)  # votes, SNR, spread
    expect(cards.last.get_by_role("img")).to_have_count(1)
    expect(cards.first).to_contain_text("Gain (SG)")
    boxes = page.locator("#samplers input")
    page.get_by_label("dropout:0.5").check()
    expect(page.locator("#samplers input:disabled")).to_have_count(boxes.count() - 4)
    for name in ("gts", "gaussian:1.0", "dropout:0.1"):
        page.get_by_label(name, exact=True).uncheck()
    expect(page.get_by_role("button", name="Compare", exact=True)).to_be_disabled()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(server: RunningServer, browser: Browser, scheme: str) -> None:
    context = browser.new_context(color_scheme=scheme, reduced_motion="reduce")
    page = context.new_page()
    page.goto(f"{server.url}/")
    expect(page.get_by_label("Model", exact=True)).to_have_value("counting")
    assert serious(page) == []
    see_all(page)
    page.get_by_text("Seed, deadline and more").click()
    assert serious(page) == []
    ask(page, " ")
    expect(page.locator("#error")).to_be_visible()
    assert serious(page) == []
    context.close()


def test_nothing_sticks_out_of_a_narrow_window(server: RunningServer, tab: Tab) -> None:
    tab.page.set_viewport_size({"width": 320, "height": 640})
    page = tab.open(server.url)
    see_all(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 320


def test_what_a_model_says_is_text_and_never_markup(server: RunningServer, tab: Tab) -> None:
    page = tab.open(server.url)
    trajectory = {"index": -1, "text": MARKUP, "answer": MARKUP, "logprob": -1, "confidence": 0.4}
    candidate = {"answer": MARKUP, "votes": 2, "share": 1, "confidence": 1, "trajectories": [0]}
    result = {
        **RESULT,
        "sampler": MARKUP,
        "stop_reason": MARKUP,
        "answer": MARKUP,
        "candidates": [candidate],
        "paths": {
            "explained": [0.5, 0.2],
            "median": [[0, 0]],
            "trajectories": [{**trajectory, "points": [[0, 0]]}],
        },
        "readings": [{"index": -1, "thoughts": [[{"token": MARKUP, "probability": 1}]]}],
    }
    fulfil(page, result)
    ask(page, MARKUP)
    page.get_by_role("button", name="See the thoughts").click()
    expect(page.locator("#readings td span")).to_have_text(MARKUP.replace(" ", "␣"))
    assert page.locator("#winner").inner_text() == MARKUP
    assert page.locator("main img, main b:has-text('7'):not(.count b)").count() == 0


def test_a_panel_says_who_voted_and_its_members_are_compared(
    folder: Path, text_folder: Path, tab: Tab
) -> None:
    panel = ("--panel", "duo=counting:gts,texting:token:1.0")
    with RunningServer(folder, text_folder, flags=panel) as running:
        page = tab.open(running.url)
        page.get_by_label("Model", exact=True).select_option("duo")
        ask(page, QUESTION, budget=8)
        expect(page.get_by_role("button", name="Same again")).to_be_visible()
        members = ["counting:gts", "texting:token:1.0"]
        voted = dict.fromkeys(members, 0)
        for row in page.locator(".bars li").all():
            counts = row.locator(".voters").inner_text().split(" · ")
            own = {name: int(count) for name, _, count in (c.rpartition(" ") for c in counts)}
            assert sum(own.values()) == int(row.locator(".count b").inner_text())
            voted = {name: votes + own.get(name, 0) for name, votes in voted.items()}
        drawn = page.locator(".facts .members li")
        expect(drawn).to_have_count(2)
        for name, text in zip(members, drawn.all_inner_texts(), strict=True):
            assert text.startswith(f"{name}: {voted[name]} trajectories, ")
        assert "undefined" not in page.locator("#calls").inner_text()
        expect(page.locator("#thoughts-hint")).to_contain_text("What the members wrote")
        expect(page.locator("#texts li").first).to_contain_text(re.compile("counting:gts|texting"))
        page.get_by_role("button", name="Compare", exact=True).click()
        expect(page.locator("#comparison .sampler")).to_have_count(2)


def test_an_unfamiliar_question_is_said_in_words(folder: Path, tab: Tab, tmp_path: Path) -> None:
    own = Path(shutil.copytree(folder, tmp_path / "known"))
    digest = weights_digest(own / "samplers" / "default")
    calibration = make_calibration(sampler="gts", sampler_fingerprint=digest)
    reference, _ = make_reference([QUESTION, QUESTION])
    write_calibrations(own / FILE_NAME, Calibrations(fingerprint(own), (calibration,), reference))
    with RunningServer(own) as running:
        page = tab.open(running.url)
        page.get_by_label("Stop early").select_option("at 80% confidence")
        ask(page, QUESTION, budget=8)
        expect(page.locator("#answer .facts")).to_contain_text("Questionlike those")
        expect(page.locator(".warning")).to_have_count(0)
        ask(page, "Explain which of the seven dwarfs snored loudest", budget=8)
        expect(page.locator(".warning")).to_contain_text(
            "unlike those that the model was calibrated"
        )
        expect(page.locator("#answer .facts")).to_contain_text("Questionunlike those")
        page.get_by_text("Seed, deadline and more").click()
        page.get_by_label("Give no answer").select_option("below 90% confidence")
        page.get_by_label("Stop early").select_option("no")
        page.get_by_label("Seed", exact=True).fill("3")  # with which one trajectory is readable
        ask(page, "Explain which of the seven dwarfs snored loudest", budget=8)
        expect(page.locator("#winner")).to_have_text("no answer")
        expect(page.locator(".sure")).to_contain_text("leads, but is less likely right")
        assert serious(page) == []


def test_a_model_is_asked_as_it_is_by_default(text_folder: Path, tab: Tab, tmp_path: Path) -> None:
    own = Path(shutil.copytree(text_folder, tmp_path / "own"))
    settings = json.loads((own / "reasoner.json").read_text())
    changed = {**settings, "sampler": "token:0.7", "vote": "checked"}
    (own / "reasoner.json").write_text(json.dumps(changed))
    with RunningServer(own) as running:
        page = tab.open(running.url)
        ask(page, QUESTION, budget=2)
        expect(page.locator("#answer .facts")).to_contain_text("Samplertoken:0.7")
        expect(page.locator("#answer .facts")).to_contain_text("Votetrue equations only")
        options = page.locator("#vote option").all_inner_texts()
        assert options[0] == "true equations only (default)"
        assert "nearest the median thought" not in options


def test_unreadable_answers_are_shown_whatever_else_is(server: RunningServer, tab: Tab) -> None:
    page = tab.open(server.url)
    cast = [*((str(number), 2) for number in range(12)), (None, 40)]
    candidates = [
        {"answer": answer, "votes": votes, "share": votes / 64, "confidence": 0.5}
        for answer, votes in cast
    ]
    fulfil(page, {**RESULT, "answer": "0", "candidates": candidates})
    ask(page, QUESTION)
    shown = page.locator(".bars li")
    expect(shown).to_have_count(12)
    expect(shown.nth(10)).to_contain_text("unreadable")
    expect(shown.nth(10)).to_contain_text("40 votes")
    expect(shown.nth(11)).to_have_text("and 2 more, 4 votes together")
