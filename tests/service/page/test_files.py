"""The playground's files: served with strict headers, all of them packaged, none from elsewhere."""

import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import httpx
import pytest

from tests.service.server import RunningServer

ROOT = Path(__file__).parents[3]
STATIC = ROOT / "service" / "page" / "static"
FILES = sorted(path.name for path in STATIC.iterdir())
SCRIPTS = [name for name in FILES if name.endswith(".js")]


def test_the_page_and_its_files_have_a_strict_policy(http: httpx.Client) -> None:
    for path in ("/", *(f"/page/{name}" for name in FILES)):
        answer = http.get(path)
        assert answer.status_code == 200, path
        policy = answer.headers["Content-Security-Policy"].split("; ")
        assert {"default-src 'none'", "script-src 'self'", "style-src 'self'"} <= set(policy)
        assert "unsafe" not in answer.headers["Content-Security-Policy"]
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert http.head("/").status_code == 200
    assert http.get("/page/nothing.js").status_code == 404
    assert http.get("/page/../routes.py").status_code == 404


def test_the_page_opens_without_a_token(narrow: RunningServer) -> None:
    with httpx.Client(base_url=narrow.url, timeout=60) as http:
        assert http.get("/").status_code == 200
        assert http.get("/page/app.js").status_code == 200
        assert http.get("/v1/models").status_code == 401


def test_an_installed_package_holds_every_file_of_the_page() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = project["tool"]["setuptools"]["package-data"]["service.page"]
    for name in FILES:
        assert any(fnmatch(f"static/{name}", pattern) for pattern in patterns), name


@pytest.mark.parametrize("name", ["index.html", *SCRIPTS])
def test_what_a_file_loads_is_there_and_ours(name: str) -> None:
    text = (STATIC / name).read_text(encoding="utf-8")
    loaded = re.findall(r'from "\./([^"]+)"|(?:src|href)="page/([^"]+)"', text)
    names = {one or other for one, other in loaded}
    assert names <= set(FILES)
    addresses = set(re.findall(r"(?:https?:)?//[\w.-]+\.\w+[\w./-]*", text))
    assert addresses <= {"http://www.w3.org/2000/svg"}  # a name, not an address


@pytest.mark.parametrize("name", SCRIPTS)
def test_no_script_turns_text_into_markup_or_code(name: str) -> None:
    text = (STATIC / name).read_text(encoding="utf-8")
    forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function"
    assert not re.search(forbidden, text)
    assert 'setAttribute("style"' not in text
