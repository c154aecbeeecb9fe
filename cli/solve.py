"""`gts solve`: one question, N trajectories, a table of candidates; here or on a server."""

import secrets
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.options import (
    Device,
    Dtype,
    Json,
    ModelOrPanel,
    Threads,
    Token,
    Url,
    check_place,
    load_solver,
    read_question,
    typed_options,
)
from latent.zoo import DEFAULT_MODEL

if TYPE_CHECKING:
    from service.api.schemas import CandidateOut, SolveResponse

_BAR_WIDTH = 24
# Offered by shell completion.
_VOTES = ("majority", "confidence", "best", "centroid", "checked", "likelihood", "verifier")
_SAMPLERS = ("deterministic", "dropout:0.1", "gaussian:1.0", "gts", "token:1.0")
_QUESTION = "Tom has 12 apples. He buys 5 more and gives 3 to Anna. How many apples does Tom have?"
_EXAMPLES = f"""
[bold]Examples[/bold]

gts solve "{_QUESTION}" --seed 7

gts solve "…" -n 32 --model coconut-tiny --sampler gts --vote confidence --seed 7

gts solve - -n 128 --model coconut-tiny --sampler dropout:0.1 --json < question.txt

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
            "Without it: the reasoner's own, which is gts, or token for text, unless its folder "
            "names another.",
        ),
    ] = None,
    model: ModelOrPanel = DEFAULT_MODEL,
    seed: Annotated[int | None, typer.Option(help="Drawn, and printed, when absent.")] = None,
    vote: Annotated[
        str | None,
        typer.Option(
            help="majority, confidence, best, centroid, checked, which leaves out trajectories with "
            "a false equation, likelihood, which takes the answer with the likeliest reasoning, or "
            "verifier, for a model that has one (gts train verifier). Without it: the model's "
            "default, or majority.",
            autocompletion=lambda: list(_VOTES),
        ),
    ] = None,
    include_deterministic: Annotated[
        bool,
        typer.Option(
            "--include-deterministic", help="Let the unperturbed trajectory be one of the budget."
        ),
    ] = False,
    stop: Annotated[
        str | None,
        typer.Option(
            help="Draw no more once the leader is certain to stay ahead, as in certainty:0.95, or "
            "right with a calibrated probability, as in confidence:0.9."
        ),
    ] = None,
    abstain_below: Annotated[
        float | None,
        typer.Option(help="Give no answer with a calibrated confidence below this, as in 0.6."),
    ] = None,
    trajectories: Annotated[
        bool, typer.Option("--trajectories", help="Show every trajectory's text too.")
    ] = False,
    device: Device = "auto",
    dtype: Dtype = "auto",
    threads: Threads = None,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Solve a question by drawing trajectories of thought and voting."""
    from rich.console import Console

    from latent.stopping import Stop
    from latent.trajectory import budget_indices
    from latent.votes import parse_vote

    given = typed_options(context)
    check_place(given, is_remote=url is not None)
    loading_seconds = None
    notes = Console(stderr=True)
    with notes.status("thinking …") if notes.is_terminal else nullcontext():
        text = read_question(question)
        if vote is not None:
            parse_vote(vote)
        budget_indices(budget)  # a bad budget is refused before anything is loaded or sent
        rule = None if stop is None else Stop.parse(stop)
        common: dict[str, Any] = {
            "budget": budget,
            "sampler": sampler,
            "seed": seed,
            "vote": vote,
            "include_deterministic": include_deterministic,
            "abstain_below": abstain_below,
        }
        if url is None:
            from service.api.conversion import solve_response

            started = time.perf_counter()
            solve = load_solver(model, sampler, device, dtype, threads)
            loading_seconds = time.perf_counter() - started
            response = solve_response(
                solve(text, **common, stop=rule),
                request_id=f"solve-{secrets.token_hex(8)}",
                with_trajectories=trajectories,
            )
        else:
            from service.client import Client, Retries

            common["model"] = model if "model" in given else None  # None: the server's default
            common["stop"] = None if rule is None else {rule.kind: rule.level}
            common["include"] = ["trajectories"] if trajectories else []
            # Few retries: a user at a terminal should soon learn that the address is wrong.
            with Client(url, token=token or None, retries=Retries(tries=4)) as client:
                response = client.solve(text, **common)
    if as_json:
        typer.echo(response.model_dump_json(indent=2))
    else:
        print_response(response, loading_seconds)


solve_command.__doc__ = f"{solve_command.__doc__}\n{_EXAMPLES}"


def print_response(response: "SolveResponse", loading_seconds: float | None = None) -> None:
    """Print the candidates of a solved question, and what they cost; loading apart from solving."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    width = _BAR_WIDTH if console.width >= 90 or response.members is None else _BAR_WIDTH // 2
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title, justify in (("answer", "right"), ("votes", "right"), ("share", "left")):
        table.add_column(title, justify=justify)  # type: ignore[arg-type]
    table.add_column("", justify="right")
    table.add_column("confidence", justify="right")
    if response.members is not None:
        table.add_column("voters")
    for place, candidate in enumerate(response.candidates):
        style = "bold green" if place == 0 else ""
        filled = round(candidate.share * width)
        table.add_row(
            Text(
                candidate.answer or "unreadable", style=style or ("" if candidate.answer else "dim")
            ),
            str(candidate.votes),
            Text("█" * filled + "░" * (width - filled), style=style),
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
    if response.stop_reason == "abstained":
        console.print("no answer: that is below what --abstain-below asks for", highlight=False)
    if response.warning:  # whole lines for a program
        console.print(response.warning, style="yellow", soft_wrap=not console.is_terminal)
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
            f"{response.model}{sampler}  vote {response.vote}  seed {response.seed}  "
            f"budget {_budget(response)}  {usage.thoughts} thoughts  {usage.answer_tokens} tokens  "
            f"{response.timing_ms.total:.0f} ms"
            + ("" if loading_seconds is None else f", after {loading_seconds:.1f} s of loading"),
            style="dim",
        ),
        soft_wrap=True,
    )


def _budget(response: "SolveResponse") -> str:
    used = response.budget_used
    return str(used) if used == response.budget else f"{used} of {response.budget}"


def _voters(candidate: "CandidateOut") -> str:
    votes = candidate.members or {}
    return "  ".join(f"{member.partition(':')[0]} {count}" for member, count in votes.items())
