"""The examples of README.md, docs/*.md and `--help` work as they stand there."""

import ast
import contextlib
import importlib.util
import io
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from cli.main import main
from latent.zoo import embedded_models
from tests.docs.markdown import (
    DOCS,
    README,
    ROOT,
    Block,
    Shell,
    anchors,
    blocks,
    command_tree,
    help_commands,
    links,
    prose,
    shell_commands,
    spans,
    table,
)
from tests.service.server import RunningServer
from trainer.verifier.config import VerifierConfig

# Every question that an example asks, and its answer, worked out by hand.
ANSWERS = {
    "Tom has 12 apples. He buys 5 more and gives 3 to Anna. How many apples does Tom have?": 12
    + 5
    - 3,
    "Ivan has 88 apples. He finds 10 on the ground. He gives 14 to the neighbours. "
    "How many apples are left?": 88 + 10 - 14,
    "Ivan has 88 apples. He finds 10 on the ground. A friend gives him 17 apples. A friend gives him "
    "20 apples. He gives 14 to the neighbours. How many apples are left?": 88 + 10 + 17 + 20 - 14,
}

_FILES = [README, *DOCS]
_LINKED = [*_FILES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *ROOT.glob("deploy/*/*.md")]
_COMMANDS = command_tree()
_HELP = help_commands()
_GTS = [one for path in _FILES for one in shell_commands(path) if one.gts_words is not None] + _HELP
_CURLS = [one for path in _FILES for one in shell_commands(path) if one.words[0] == "curl"]
_SNIPPETS = [block for path in _FILES for block in blocks(path) if block.language == "python"]
_CLIENTS = [block for block in _SNIPPETS if "from openai " in "\n".join(block.lines)]
_QUESTION = re.compile(r'[A-Z]\w+ has \d+ [^"?]*\?')
_SERVED = re.compile(r"(?:http://)?(?:127\.0\.0\.1|localhost):8000")


def _ids(examples: list[Shell] | list[Block]) -> list[str]:
    return [f"{number}-{one.name}" for number, one in enumerate(examples)]


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with RunningServer() as running:
        yield running


@pytest.fixture
def gts(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Any:
    """Run `gts` in this process and in an empty folder; return what it printed."""

    def run(*words: str, stdin: str = "") -> str:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["gts", *words])
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        with pytest.raises(SystemExit) as caught:
            main()
        done = capsys.readouterr()
        assert not caught.value.code, done.err
        return done.out

    return run


def test_there_are_examples_to_check() -> None:
    """A change of the extraction must not leave the other tests with nothing to do."""
    assert {"/solve", "/diagnose", "/v1/models", "/livez", "/readyz", "/metrics"} <= {
        "/" + word.partition(":8000/")[2] for one in _CURLS for word in one.words
    }
    assert len(_SNIPPETS) >= 3
    assert len([one for one in _GTS if _is_quick(one)]) >= 5
    assert {one.name.removesuffix(" --help") for one in _HELP} >= {"gts solve", "gts serve"}


# Commands of the shell


@pytest.mark.parametrize("example", _GTS, ids=_ids(_GTS))
def test_a_gts_command_parses(example: Shell) -> None:
    words = example.gts_words
    assert words is not None
    name, rest = _command_of(words)
    if rest[-1:] == ["…"]:  # stands for options
        return
    try:
        _COMMANDS[name].make_context(name, rest)
    except Exception as error:
        pytest.fail(f"{example.name}: {example.text}: {error}")


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.name)
def test_a_command_in_running_text_names_options_that_exist(path: Path) -> None:
    for span in spans(path):
        words = span.split()
        if words[0] != "gts" or len(words) == 1:
            continue
        groups = {name.rpartition(" ")[0] for name in _COMMANDS}
        if " ".join(words[1:]) in groups | {"train backbone coconut|codi|cot"}:
            continue  # a group of commands
        name, rest = _command_of(words[1:])
        known = {
            flag for one in _COMMANDS[name].params for flag in (*one.opts, *one.secondary_opts)
        }
        flags = {word.partition("=")[0] for word in rest if word.startswith("-") and word != "-"}
        assert flags <= known | {"--help"}, span


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.name)
def test_a_module_that_is_run_exists(path: Path) -> None:
    texts = [one.text for one in shell_commands(path)] + spans(path)
    for module in re.findall(r"\bpython -m ([\w.]+)", "\n".join(texts)):
        assert importlib.util.find_spec(module), module


def _command_of(words: list[str]) -> tuple[str, list[str]]:
    """Split words into the name of a command and its arguments."""
    for length in (3, 2, 1):
        name = " ".join(words[:length])
        if name in _COMMANDS:
            return name, words[length:]
    raise AssertionError(f"no command of gts: {' '.join(words)}")


def _is_quick(example: Shell) -> bool:
    """Whether a command needs nothing but the embedded models, and takes seconds."""
    words = example.gts_words
    if words is None or example.text.startswith("torchrun") or "…" in words or "--url" in words:
        return False
    if any("my-" in word for word in words):  # a folder of the reader's
        return False
    models = {words[n + 1] for n, word in enumerate(words) if word in ("--model", "-m")}
    if not models <= embedded_models().keys():
        return False
    if words[0] == "evaluate":
        return "--limit" in words and int(words[words.index("--limit") + 1]) <= 16
    return words[0] in ("solve", "models", "diagnose") or bool(
        {"steps=2", "--show-config"} & set(words)
    )


_QUICK = list({one.text: one for one in _GTS if _is_quick(one)}.values())


@pytest.mark.parametrize("example", _QUICK, ids=_ids(_QUICK))
def test_a_command_on_the_embedded_models_runs_and_prints_what_is_shown(
    gts: Any, example: Shell
) -> None:
    words = example.gts_words
    assert words is not None
    question = list(ANSWERS)[1] if "-" in words else words[1] if words[0] == "solve" else None
    printed = gts(*words, stdin=question or "")
    if example.output:  # perhaps without its last lines
        shown = _lines("\n".join(example.output))
        assert _lines(printed)[: len(shown)] == shown
    elif question is not None:
        answer = (
            json.loads(printed)["answer"] if "--json" in words else _lines(printed)[1].split()[0]
        )
        assert answer == str(ANSWERS[question])


def _lines(text: str) -> list[str]:
    """The lines without the time that a run took."""
    timeless = re.sub(r"\d+ ms(, after [\d.]+ s of loading)?", "ms", text)
    return [line.strip() for line in timeless.splitlines() if line.strip()]


# Questions


def test_every_question_of_an_example_is_one_whose_answer_is_known() -> None:
    texts = [path.read_text(encoding="utf-8") for path in _FILES] + [one.text for one in _HELP]
    asked = {
        " ".join(found.replace("\\", " ").split())
        for text in texts
        for found in _QUESTION.findall(text)
    }
    assert asked
    assert asked <= ANSWERS.keys(), "add it to ANSWERS with the answer, if the model gives that"


def test_the_questions_of_the_openapi_schema_are_answered_rightly(server: RunningServer) -> None:
    schemas = httpx.get(f"{server.url}/openapi.json").json()["components"]["schemas"]
    for name in ("SolveRequest", "DiagnoseRequest"):
        (question,) = schemas[name]["properties"]["question"]["examples"]
        body = {"question": question, "seed": 7}
        solved = httpx.post(f"{server.url}/solve", json=body, timeout=60).json()
        assert solved["answer"] == str(ANSWERS[question])
    (answer,) = schemas["DiagnoseRequest"]["properties"]["answer"]["examples"]
    assert answer == ANSWERS[question]


# HTTP and Python


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize(
    "path",
    [p for p in _FILES if any(one.name.startswith(f"{p.name}:") for one in _CURLS)],
    ids=lambda path: path.name,
)
def test_a_curl_works_when_it_is_pasted(server: RunningServer, path: Path) -> None:
    for example in _CURLS:
        if not example.name.startswith(f"{path.name}:"):
            continue
        text = _SERVED.sub(server.url, example.text).replace("curl ", "curl -sS --fail ", 1)
        done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{example.name}: {done.stderr}"
        (body,) = [json.loads(word) for word in example.words if word.startswith("{")] or [None]
        if body is not None:
            _check_response(body, done.stdout)
        elif "/metrics" in text:
            assert "gts_requests_total" in done.stdout
        else:
            json.loads(done.stdout)


def _check_response(body: dict[str, Any], text: str) -> None:
    """Compare the response to the body of an example with the right answers."""
    if body.get("stream"):
        event, _, data = text.strip().split("\n\n")[-1].partition("\ndata: ")
        assert event == "event: result"
        text = data
    response = json.loads(text)
    if "choices" in response:
        asked = body.get("prompt") or body["messages"][-1]["content"]
        assert response["gts"]["answer"] == str(ANSWERS[asked])
        return
    if "samplers" in response:  # a diagnosis
        assert body["answer"] == ANSWERS[body["question"]]
        assert [one["sampler"] for one in response["samplers"]] == body["samplers"]
        return
    questions = body["question"] if isinstance(body["question"], list) else [body["question"]]
    results = response["results"] if isinstance(body["question"], list) else [response]
    if "abstain_below" in body:
        assert (response["answer"], response["stop_reason"]) == (None, "abstained")
        assert response["unfamiliar"]
        return
    assert [one["answer"] for one in results] == [str(ANSWERS[one]) for one in questions]
    if "stop" in body:
        assert (response["stop_reason"], response["budget_used"]) == ("certainty", 4)


@pytest.mark.parametrize(
    "snippet",
    [
        pytest.param(one, marks=[pytest.mark.clients] if one in _CLIENTS else [])
        for one in _SNIPPETS
    ],
    ids=_ids(_SNIPPETS),
)
def test_a_python_snippet_runs_and_prints_what_its_comments_say(
    server: RunningServer, snippet: Block, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = _SERVED.sub(server.url, "\n".join(snippet.lines))
    tree = ast.parse(text, snippet.name)
    if "my-" in text:  # needs a folder of the reader's: only its imports can be checked
        tree.body = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    monkeypatch.chdir(tmp_path)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(tree, snippet.name, "exec"), {"__name__": "__main__"})
    expected = [line.partition("# → ")[2] for line in snippet.lines if "# → " in line]
    assert not expected or printed.getvalue().splitlines() == expected


# Tables that must be complete


def test_the_table_of_settings_lists_every_setting_with_its_defaults(gts: Any) -> None:
    rows = table(ROOT / "docs" / "training.md", "### Settings")
    for column, preset in ((1, "default"), (2, "paper")):
        words = ("--model", "coconut-tiny", "--out", "unused", "--preset", preset, "--show-config")
        shown = dict(line.split("=", 1) for line in gts("train", "sampler", *words).splitlines())
        named = {"null": "None", "true": "True", "false": "False"}
        listed = {row[0].strip("`"): row[column].strip("`") for row in rows}
        assert {name: named.get(value, value) for name, value in listed.items()} == shown
    assert all(row[3] for row in rows)


def test_the_table_of_a_verifiers_settings_lists_every_setting_with_its_default() -> None:
    rows = table(ROOT / "docs" / "training.md", "### Settings of a verifier")
    listed = {row[0].strip("`"): row[1] for row in rows}
    assert listed == {name: str(value) for name, value, _ in VerifierConfig().rows()}
    assert all(row[2] for row in rows)


def test_every_flag_of_the_server_is_in_the_table_of_operations() -> None:
    rows = table(ROOT / "docs" / "operations.md", "## Tuning")
    listed = set(re.findall(r"--[a-z-]+", " ".join(row[0] for row in rows)))
    flags = {opt for one in _COMMANDS["serve"].params for opt in one.opts if opt.startswith("--")}
    assert flags - {"--help"} <= listed


def test_the_api_page_names_every_endpoint_field_and_error(server: RunningServer) -> None:
    pages = [ROOT / "docs" / name for name in ("api.md", "openai.md")]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    schema = httpx.get(f"{server.url}/openapi.json").json()
    unlisted = {"HTTPValidationError", "ValidationError"}  # FastAPI's own, which are never sent
    for path, methods in schema["paths"].items():
        assert all(f"{method.upper()} {path}" in text for method in methods)
        codes = {code for method in methods.values() for code in method["responses"]}
        assert all(f"| {code} |" in text for code in codes - {"200"})
    for name, shape in schema["components"]["schemas"].items():
        fields = () if name in unlisted else shape.get("properties", ())
        missing = [field for field in fields if not re.search(rf"\b{field}\b", text)]
        assert not missing, f"{name}: {missing}"


# Links


@pytest.mark.parametrize("path", _LINKED, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_link_to_a_file_or_a_heading_resolves(path: Path) -> None:
    for link in links(path):
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_a_page_of_docs_is_reachable_from_the_others() -> None:
    linked = {link.partition("#")[0] for path in DOCS for link in links(path)}
    assert {path.name for path in DOCS} - {"results.md"} <= linked
    assert all(prose(path).startswith("# ") for path in DOCS)
