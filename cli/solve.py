"""`gts solve`: one question, N trajectories, a table of candidates; here or on a server."""

import secrets
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.options import Device, Dtype, Json, ModelOrPanel, Threads, load_panel, load_reasoner
from latent.errors import InputError
from latent.zoo import DEFAULT_MODEL

if TYPE_CHECKING:
    from latent.solved import Solved
    from service.api.schemas import CandidateOut, SolveResponse

_BAR_WIDTH = 24
# Offered by shell completion.
_VOTES = ("majority", "confidence", "best", "centroid")
_SAMPLERS = ("deterministic", "dropout:0.1", "gaussian:1.0", "gts", "token:1.0")
_QUESTION = (
    "Ivan has 88 apples. He finds 10 on the ground. He gives 14 to the neighbours. "
    "How many apples are left?"
)
_EXAMPLES = f"""
[bold]Examples[/bold]

gts solve "{_QUESTION}"

gts solve "…" -n 32 --sampler gts --vote confidence --seed 7

gts solve - -n 128 --sampler dropout:0.1 --json < question.txt

gts solve "…" -n 32 --model panel-tiny

gts solve "…" -n 32 --url http://127.0.0.1:8000
"""


def solve_command(
    context: typer.Context,
    question: Annotated[
        str, typer.Argument(help="The question, or - to read it from standard input.")
    ],
    budget: Annotated[
        int, typer.Option("--budget", "-n", help="How many trajectories to draw.")
    ] = 8,
    sampler: Annotated[
        str | None,
        typer.Option(
            "--sampler",
            "-s",
            autocompletion=lambda: list(_SAMPLERS),
            help="deterministic, dropout:0.1, gaussian:1.0, gts, gts:NAME, gts:./DIR or token:1.0. "
            "Without it: gts, or token for a text reasoner.",
        ),
    ] = None,
    model: ModelOrPanel = DEFAULT_MODEL,
    seed: Annotated[int | None, typer.Option(help="Drawn, and printed, when absent.")] = None,
    vote: Annotated[
        str,
        typer.Option(
            help="majority, confidence, best or centroid.", autocompletion=lambda: list(_VOTES)
        ),
    ] = "majority",
    include_deterministic: Annotated[
        bool,
        typer.Option(
            "--include-deterministic", help="Let the unperturbed trajectory be one of the budget."
        ),
    ] = False,
    trajectories: Annotated[
        bool, typer.Option("--trajectories", help="Show every trajectory's text too.")
    ] = False,
    device: Device = "auto",
    dtype: Dtype = "auto",
    threads: Threads = None,
    url: Annotated[
        str | None,
        typer.Option(
            help="Ask this server (gts serve) instead of loading a model. --model is then a name "
            "that it serves; without it, the server's default.",
        ),
    ] = None,
    token: Annotated[
        str | None, typer.Option(envvar="GTS_TOKEN", help="The server's bearer token, for --url.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Solve a question by drawing trajectories of thought and voting."""
    from rich.console import Console

    from latent.trajectory import budget_indices
    from latent.votes import parse_vote
    from service.api.conversion import solve_response
    from service.client import Client, Retries

    given = {name for name in context.params if _is_typed(context, name)}
    _check_place(given, is_remote=url is not None)
    notes = Console(stderr=True)
    with notes.status("thinking …") if notes.is_terminal else nullcontext():
        text = _read_stdin() if question == "-" else question
        parse_vote(vote)
        budget_indices(budget)  # a bad budget is refused before anything is loaded or sent
        common: dict[str, Any] = {
            "budget": budget,
            "sampler": sampler,
            "seed": seed,
            "vote": vote,
            "include_deterministic": include_deterministic,
        }
        if url is None:
            response = solve_response(
                _solve(text, model, common, device, dtype, threads),
                request_id=f"solve-{secrets.token_hex(8)}",
                with_trajectories=trajectories,
            )
        else:
            common["model"] = model if "model" in given else None  # None: the server's default
            common["include"] = ["trajectories"] if trajectories else []
            # Few retries: a user at a terminal should soon learn that the address is wrong.
            with Client(url, token=token or None, retries=Retries(tries=4)) as client:
                response = client.solve(text, **common)
    if as_json:
        typer.echo(response.model_dump_json(indent=2))
    else:
        _print(response)


solve_command.__doc__ = f"{solve_command.__doc__}\n{_EXAMPLES}"


def _solve(
    question: str,
    model: str,
    options: dict[str, Any],
    device: str,
    dtype: str,
    threads: int | None,
) -> "Solved":
    """Solve a question here, with the reasoner or the panel that --model names."""
    from latent.zoo import find_panel

    if find_panel(model) is None:
        return load_reasoner(model, device, dtype, threads).solve(question, **options)
    if options.pop("sampler") is not None:
        raise InputError("the members of a panel have their own samplers; leave --sampler out")
    del options["include_deterministic"]  # every member's first trajectory is its deterministic one
    return load_panel(model, device, dtype, threads).solve(question, **options)


def _is_typed(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _check_place(given: set[str], *, is_remote: bool) -> None:
    """Refuse options that mean nothing where the question is solved."""
    if is_remote and (local := sorted(given & {"device", "dtype", "threads"})):
        raise InputError(f"--{local[0]} is the server's to choose; leave it out with --url")
    if not is_remote and "token" in given:
        raise InputError("--token goes with --url")


def _read_stdin() -> str:
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise InputError(f"standard input is not UTF-8 text: {error.reason}") from error


def _print(response: "SolveResponse") -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title, justify in (("answer", "right"), ("votes", "right"), ("share", "left")):
        table.add_column(title, justify=justify)  # type: ignore[arg-type]
    table.add_column("", justify="right")
    table.add_column("confidence", justify="right")
    if response.members is not None:
        table.add_column("voters")
    for place, candidate in enumerate(response.candidates):
        style = "bold green" if place == 0 else ""
        filled = round(candidate.share * _BAR_WIDTH)
        table.add_row(
            Text(
                candidate.answer or "unreadable", style=style or ("" if candidate.answer else "dim")
            ),
            str(candidate.votes),
            Text("█" * filled + "░" * (_BAR_WIDTH - filled), style=style),
            f"{candidate.share:.0%}",
            f"{candidate.confidence:.2f}",
            *([_voters(candidate)] if response.members is not None else []),
        )
    console.print(table)
    for trajectory in response.trajectories or ():
        text = " ".join(trajectory.text.split())
        console.print(
            Text(f"{trajectory.index:4d}  {trajectory.confidence:.2f}  {text}", style="dim")
        )
    if response.confidence_kind == "calibrated":
        console.print(f"right with probability {response.confidence:.0%}", highlight=False)
    for member in response.members or ():
        console.print(
            Text(
                f"{member.member}  {member.usage.trajectories} trajectories  "
                f"{member.usage.answer_tokens} tokens  {member.timing_ms.total:.0f} ms",
                style="dim",
            )
        )
    usage = response.usage
    sampler = f"  sampler {response.sampler}" if response.members is None else ""
    console.print(
        Text(
            f"{response.model}{sampler}  seed {response.seed}  "
            f"budget {response.budget}  {usage.thoughts} thoughts  {usage.answer_tokens} tokens  "
            f"{response.timing_ms.total:.0f} ms",
            style="dim",
        ),
        soft_wrap=True,
    )


def _voters(candidate: "CandidateOut") -> str:
    votes = candidate.members or {}
    return "  ".join(f"{member.partition(':')[0]} {count}" for member, count in votes.items())
