"""`gts chat`: questions at a prompt, one after the other, with the model loaded once."""

import contextlib
import os
import secrets
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.options import (
    Device,
    Dtype,
    ModelOrPanel,
    Threads,
    Token,
    Url,
    check_place,
    load_solver,
    typed_options,
)
from latent.errors import GtsError
from latent.zoo import DEFAULT_MODEL

if TYPE_CHECKING:
    from collections.abc import Callable

    from service.api.schemas import SolveResponse

__all__ = ["chat_command"]

_ENDS = ("exit", "quit")


def chat_command(
    context: typer.Context,
    budget: Annotated[
        int, typer.Option("--budget", "-n", help="How many trajectories to draw.")
    ] = 8,
    sampler: Annotated[str | None, typer.Option("--sampler", "-s", help="As in gts solve.")] = None,
    model: ModelOrPanel = DEFAULT_MODEL,
    seed: Annotated[
        int | None, typer.Option(help="Of every question; drawn for each when absent.")
    ] = None,
    vote: Annotated[
        str | None,
        typer.Option(
            help="majority, confidence, best, centroid, checked, likelihood or verifier.",
            show_default=False,
        ),
    ] = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    threads: Threads = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Ask questions at a prompt; the model stays loaded. Ctrl-C drops a question, Ctrl-D or exit ends.

    [bold]Examples[/bold]

    gts chat -n 32

    gts chat --url http://127.0.0.1:8000
    """
    from latent.trajectory import budget_indices
    from latent.votes import parse_vote

    given = typed_options(context)
    check_place(given, is_remote=url is not None)
    if vote is not None:
        parse_vote(vote)
    budget_indices(budget)
    options: dict[str, Any] = {"budget": budget, "sampler": sampler, "seed": seed, "vote": vote}
    with contextlib.ExitStack() as stack:
        if url is None:
            ask = _local(model, options, device, dtype, threads)
        else:
            from service.client import Client, Retries

            client = stack.enter_context(Client(url, token=token or None, retries=Retries(tries=4)))
            asked = {**options, "model": model if "model" in given else None}

            def ask(question: str) -> "SolveResponse":
                return client.solve(question, **asked)

        _talk(ask)


def _local(
    model: str, options: dict[str, Any], device: str, dtype: str, threads: int | None
) -> "Callable[[str], SolveResponse]":
    """Load the model and run it once, so that the first question is as quick as the next."""
    from service.api.conversion import solve_response

    started = time.perf_counter()
    solve = load_solver(model, options["sampler"], device, dtype, threads)

    def ask(question: str) -> "SolveResponse":
        solved = solve(question, **options)
        request_id = f"chat-{secrets.token_hex(8)}"
        return solve_response(solved, request_id=request_id, with_trajectories=False)

    ask("1 + 1 =")
    typer.echo(f"{model} loaded in {time.perf_counter() - started:.1f} s", err=True)
    return ask


def _talk(ask: "Callable[[str], SolveResponse]") -> None:
    """Answer each line; what is wrong with a question is said, and the next may come."""
    from cli.solve import print_response

    for question in _lines():
        try:
            response = ask(question)
        except GtsError as error:
            typer.echo(f"gts: {error}", err=True)
        except KeyboardInterrupt:
            if not sys.stdin.isatty():
                raise
            typer.echo("cancelled", err=True)
        else:
            print_response(response)


def _lines() -> Iterator[str]:
    """The lines of standard input; at a terminal with a prompt, editing, and kept history."""
    if not sys.stdin.isatty():
        yield from (line.strip() for line in sys.stdin if line.strip())
        return
    with _history(), contextlib.suppress(EOFError):
        while (line := _line()) not in _ENDS:
            if line:
                yield line


def _line() -> str:
    """A line from the terminal; Ctrl-C drops what was typed."""
    try:
        return input("> ").strip()
    except KeyboardInterrupt:
        typer.echo("", err=True)
        return ""


@contextlib.contextmanager
def _history() -> Iterator[None]:
    """Read the lines of earlier chats, and write them back with those of this one."""
    try:
        import readline
    except ImportError:  # a Python that was built without it
        yield
        return
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    place = state / "gts" / "history"
    with contextlib.suppress(OSError):
        readline.read_history_file(place)
    try:
        yield
    finally:
        readline.set_history_length(1000)
        with contextlib.suppress(OSError):  # a home that cannot be written is no reason to fail
            place.parent.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(place)
