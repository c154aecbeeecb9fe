"""Reads examples out of Markdown files and help texts: code blocks, shell commands, links, headings."""

import re
import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer.main

from cli.main import app

ROOT = Path(__file__).parents[2]
DOCS = sorted((ROOT / "docs").glob("*.md"))
README = ROOT / "README.md"

_FENCE = re.compile(r"^```(\w*)\s*$")
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_SPAN = re.compile(r"`([^`\n]+)`")
# A paragraph of a help text that is an example, perhaps after a word that says so.
_HELP_EXAMPLE = re.compile(r"^(?:Examples?: |Ranks: )?((?:torchrun .*? )?gts .*)$")


@dataclass(frozen=True)
class Block:
    """A code block; `language` is None for an indented one."""

    path: Path
    line: int
    language: str | None
    lines: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.path.name}:{self.line}"


@dataclass(frozen=True)
class Shell:
    """One shell command of an example, and the output that is shown below it."""

    name: str
    text: str
    output: tuple[str, ...] = ()

    @property
    def words(self) -> list[str]:
        """The words as bash would pass them, without comments and redirections."""
        words = shlex.split(self.text, comments=True)
        return words[: words.index("<")] if "<" in words else words

    @property
    def gts_words(self) -> list[str] | None:
        """What is passed to `gts`, directly or by torchrun; None if this runs something else."""
        words = self.words
        while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):
            words = words[1:]
        if words[:1] == ["torchrun"]:
            words = words[words.index("--no-python") + 1 :]
        return words[1:] if words[:1] == ["gts"] else None


def blocks(path: Path) -> list[Block]:
    """The code blocks of a file."""
    found: list[Block] = []
    lines = path.read_text(encoding="utf-8").splitlines()
    number = 0
    while number < len(lines):
        start, fence = number, _FENCE.match(lines[number])
        if fence:
            number = lines.index("```", number + 1)
            found.append(Block(path, start + 1, fence[1], tuple(lines[start + 1 : number])))
        elif lines[number].startswith("    ") and not (number and lines[number - 1].strip()):
            while number < len(lines) and (
                lines[number].startswith("    ") or not lines[number].strip()
            ):
                number += 1
            content = tuple(line[4:] for line in lines[start:number])
            found.append(Block(path, start + 1, None, content))
            continue
        number += 1
    return found


def shell_commands(path: Path) -> list[Shell]:
    """Every command of the shell examples of a file, with the variables of its block filled in."""
    found = []
    for block in blocks(path):
        is_drawing = any("──" in line for line in block.lines)
        if block.language in (None, "", "sh", "bash", "console") and not is_drawing:
            found += _block_commands(block)
    return found


def _block_commands(block: Block) -> Iterator[Shell]:
    has_prompts = any(line.startswith("$ ") for line in block.lines)
    variables: dict[str, str] = {}
    lines = list(block.lines)
    while lines:
        line = lines.pop(0)
        if has_prompts and not line.startswith("$ "):
            continue
        text = line.removeprefix("$ ")
        while lines and (text.endswith("\\") or not _is_complete(text)):
            is_continued = text.endswith("\\")
            text = text[:-1] + lines.pop(0) if is_continued else f"{text}\n{lines.pop(0)}"
        text = re.sub(r"\$(\w+)", lambda m: variables.get(m[1], m[0]), text)
        words = shlex.split(text, comments=True)
        if not words:
            continue
        assigned = re.fullmatch(r"(\w+)=(.*)", words[0], re.DOTALL)
        if assigned and len(words) == 1:
            variables[assigned[1]] = assigned[2]
            continue
        output = []
        while has_prompts and lines and not lines[0].startswith("$ "):
            output.append(lines.pop(0))
        yield Shell(block.name, text, tuple(line.rstrip() for line in output if line.strip()))


def _is_complete(text: str) -> bool:
    try:
        shlex.split(text, comments=True)
    except ValueError:  # a quote is open
        return False
    return True


def spans(path: Path) -> list[str]:
    """The inline code of a file."""
    return _SPAN.findall(prose(path))


def prose(path: Path) -> str:
    """A file without its code blocks."""
    lines = path.read_text(encoding="utf-8").splitlines()
    for block in blocks(path):
        start, fences = block.line - 1, 0 if block.language is None else 2
        length = len(block.lines) + fences
        lines[start : start + length] = [""] * length
    return "\n".join(lines)


def links(path: Path) -> list[str]:
    """The targets of links and images that are not on the web."""
    return [x for x in _LINK.findall(prose(path)) if not x.startswith(("http://", "https://"))]


def anchors(path: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a file."""
    found: set[str] = set()
    counts: Counter[str] = Counter()
    for heading in re.findall(r"^#{1,6} (.+)$", prose(path), re.MULTILINE):
        plain = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        found.add(f"{plain}-{counts[plain]}" if counts[plain] else plain)
        counts[plain] += 1
    return found


def table(path: Path, heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without its head."""
    lines = path.read_text(encoding="utf-8").splitlines()
    rest = lines[lines.index(heading) :]
    start = next(n for n, line in enumerate(rest) if line.startswith("|"))
    end = next(n for n, line in enumerate(rest[start:]) if not line.startswith("|")) + start
    return [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in rest[start + 2 : end]
    ]


def command_tree() -> dict[str, Any]:
    """Every command of `gts` that does something, by its words: "train sampler"."""
    found: dict[str, Any] = {}

    def visit(command: Any, name: str) -> None:
        if not hasattr(command, "commands"):  # Typer has its own copy of Click's classes
            found[name] = command
            return
        for child, one in command.commands.items():
            visit(one, f"{name} {child}".strip())

    visit(typer.main.get_command(app), "")
    return found


def help_commands() -> list[Shell]:
    """The examples in the help texts of all commands."""
    found = []
    for name, command in command_tree().items():
        for paragraph in f"{command.help}\n\n{command.epilog or ''}".split("\n\n"):
            text = " ".join(paragraph.split())
            if example := _HELP_EXAMPLE.match(text):
                found.append(Shell(f"gts {name} --help", example[1]))
    return found
