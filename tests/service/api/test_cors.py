"""Calls from a browser's page of another origin."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from latent.errors import InputError
from service.settings import Settings, read_settings
from tests.service.server import TOKEN, RunningServer

PAGE = "https://page.example"
PREFLIGHT = {
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization",
}


@pytest.fixture(scope="module")
def http(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    tokens = tmp_path_factory.mktemp("secrets") / "tokens"
    tokens.write_text(TOKEN)
    flags = (
        "--cors-origin",
        PAGE,
        "--cors-origin",
        "http://other:3000",
        "--token-file",
        str(tokens),
    )
    with (
        RunningServer(folder, flags=flags) as running,
        httpx.Client(base_url=running.url, timeout=60) as client,
    ):
        yield client


def test_a_preflight_needs_no_token(http: httpx.Client) -> None:
    for origin in (PAGE, "http://other:3000"):
        answer = http.options("/solve", headers={"Origin": origin, **PREFLIGHT})
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == origin
        assert "POST" in answer.headers["access-control-allow-methods"]
        assert answer.headers["access-control-allow-headers"] == "authorization"


def test_the_call_has_the_headers_whether_it_is_answered_or_refused(http: httpx.Client) -> None:
    body = {"question": "1 + 1 =", "budget": 2}
    for headers, status in (({"Authorization": f"Bearer {TOKEN}"}, 200), ({}, 401)):
        answer = http.post("/solve", json=body, headers={"Origin": PAGE, **headers})
        assert answer.status_code == status
        assert answer.headers["access-control-allow-origin"] == PAGE
        assert "X-Request-Id" in answer.headers["access-control-expose-headers"]


def test_another_origin_is_refused_in_the_usual_shape(http: httpx.Client) -> None:
    answer = http.options("/solve", headers={"Origin": "https://evil.example", **PREFLIGHT})
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "cors"
    assert "access-control-allow-origin" not in answer.headers


def test_without_the_setting_a_preflight_allows_nothing_and_is_no_401(
    narrow: RunningServer,
) -> None:
    answer = httpx.options(f"{narrow.url}/solve", headers={"Origin": PAGE, **PREFLIGHT}, timeout=60)
    assert answer.status_code == 405
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("origin", ["example.org", "https://x.org/path", "ftp://x.org", ""])
def test_what_is_no_origin_is_refused_at_the_start(origin: str) -> None:
    with pytest.raises(InputError, match="is no origin"):
        read_settings({"cors_origins": [origin]})
    assert Settings().cors_origins == ()
