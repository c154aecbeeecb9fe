"""`gts diagnose`: how samplers explore one question, as a table and small plots; here or on a server."""

import secrets
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
    load_panel,
    load_reasoner,
    read_question,
    typed_options,
)
from latent.errors import InputError
from latent.zoo import DEFAULT_LATENT_MODEL

if TYPE_CHECKING:
    from rich.table import Table

    from latent.reasoner import Reasoner
    from latent.samplers import Sampler
    from service.api.diagnose_schemas import DiagnoseResponse, SamplerDiagnosisOut

__all__ = ["diagnose_command"]

_LEVELS = "▁▂▃▄▅▆▇█"
_LANES = 512  # trajectories that run at a time
_REGIME_STYLES = {"useful": "green", "over-exploration": "red", "under-exploration": "yellow"}


def diagnose_command(
    context: typer.Context,
    question: Annotated[
        str, typer.Argument(help="The question, or - to read it from standard input.")
    ],
    answer: Annotated[
        str | None, typer.Option("--answer", "-a", help="The true answer; without it no SG.")
    ] = None,
    samplers: Annotated[
        str | None,
        typer.Option(
            "--samplers",
            "-s",
            help="With commas: gts,dropout:0.1. Without it: one of every kind that the model has. The "
            "members of a panel have their own.",
        ),
    ] = None,
    budget: Annotated[
        int, typer.Option("--budget", "-n", min=2, help="Trajectories of each sampler.")
    ] = 32,
    model: ModelOrPanel = DEFAULT_LATENT_MODEL,
    seed: Annotated[int | None, typer.Option(help="Drawn, and printed, when absent.")] = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    threads: Threads = None,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Measure how samplers explore a question around its deterministic answer.

    [bold]Examples[/bold]

    gts diagnose "…" --answer 121 --samplers gts,dropout:0.1

    gts diagnose "…" --answer 121 --url http://127.0.0.1:8000 --json
    """
    from rich.console import Console

    from service.client import Client, Retries

    given = typed_options(context)
    check_place(given, is_remote=url is not None)
    notes = Console(stderr=True)
    with notes.status("thinking …") if notes.is_terminal else nullcontext():
        text = read_question(question)
        specs = None if samplers is None else [one.strip() for one in samplers.split(",")]
        if url is None:
            from latent.trajectory import budget_indices

            budget_indices(budget)  # a bad budget is refused before anything is loaded
            drawn = secrets.randbelow(2**32) if seed is None else seed
            place = (model, device, dtype, threads)
            response = _diagnose(text, answer, specs, budget, drawn, place)
        else:
            options: dict[str, Any] = {"answer": answer, "samplers": specs, "budget": budget}
            options |= {"seed": seed, "model": model if "model" in given else None}
            with Client(url, token=token or None, retries=Retries(tries=4)) as client:
                response = client.diagnose(text, **options)
    if as_json:
        typer.echo(response.model_dump_json(indent=2))
    else:
        _print(response, has_answer=answer is not None)


def _diagnose(
    question: str,
    answer: str | None,
    samplers: list[str] | None,
    budget: int,
    seed: int,
    place: tuple[str, str, str, int | None],
) -> "DiagnoseResponse":
    """Measure here what POST /diagnose measures on a server."""
    from latent.answers import parse_answer
    from latent.rollout import Ask
    from latent.trajectory import DETERMINISTIC
    from service.api.diagnose_schemas import DiagnoseResponse, SamplerDiagnosisOut
    from service.worker.diagnosis import diagnose

    truth = None if answer is None else parse_answer(answer)
    if answer is not None and truth is None:
        raise InputError(f"answer {answer!r} has no number in it", param="answer")
    name, used = _load(samplers, place)
    found = {}
    for label, (reasoner, sampler) in used.items():
        target = None if truth is None else reasoner.encode_answer(truth)
        indices = (DETERMINISTIC, *range(budget))
        ask = Ask(reasoner.encode(question), seed, indices, target=target)
        found[label] = diagnose(reasoner, sampler, ask, truth, _LANES)[1]
    return DiagnoseResponse(
        id=f"diagnose-{secrets.token_hex(8)}",
        model=name,
        seed=seed,
        budget=budget,
        deterministic_answer=next(iter(found.values()))["deterministic_answer"],
        samplers=[SamplerDiagnosisOut(sampler=spec, **one) for spec, one in found.items()],
    )


def _load(
    samplers: list[str] | None, place: tuple[str, str, str, int | None]
) -> "tuple[str, dict[str, tuple[Reasoner, Sampler]]]":
    """The model's name, and what is measured: its samplers, or the members of a panel."""
    from latent.folders import sampler_folders, sampler_spec
    from latent.zoo import find_panel

    if find_panel(place[0]) is not None:
        if samplers is not None:
            raise InputError("the members of a panel have their own samplers; leave --samplers out")
        loaded = load_panel(*place)
        pairs = zip(loaded.reasoners, loaded.samplers, strict=True)
        return loaded.name, dict(zip(loaded.panel.labels, pairs, strict=True))
    reasoner = load_reasoner(*place)
    learned = sampler_folders(reasoner.folder) if reasoner.folder else ()
    specs = samplers or reasoner.format.usual_samplers(list(map(sampler_spec, learned)))
    used = map(reasoner.sampler, specs)
    return reasoner.name, {str(sampler.spec): (reasoner, sampler) for sampler in used}


def _print(response: "DiagnoseResponse", *, has_answer: bool) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console()
    was_right = response.samplers[0].vote_curve[0].majority_correct
    judged = {None: "", True: " (right)", False: " (wrong)"}[was_right]
    said = response.deterministic_answer or "unreadable"
    console.print(f"deterministic answer {said}{judged}", highlight=False)
    console.print(_measures(response, has_answer=has_answer))
    console.print("\nthe vote as it grows: leader and its share, by budget", style="dim")
    console.print(_votes(response))
    if any(one.snr for one in response.samplers):
        console.print("\nSNR per thought, rms(μ)/rms(σ)", style="dim")
        console.print(_snr([one for one in response.samplers if one.snr]))
    footer = f"{response.model}  seed {response.seed}  budget {response.budget}"
    console.print(Text(footer, style="dim"), soft_wrap=True)


def _measures(response: "DiagnoseResponse", *, has_answer: bool) -> "Table":
    from rich.text import Text

    table = _table("sampler", *(["SG", "SG > 0.5"] if has_answer else []), "JS", "unique", "")
    for one in response.samplers:
        gains = [_number(one.sampling_gain), _number(one.gain_share)] if has_answer else []
        regime = Text(one.regime or "", style=_REGIME_STYLES.get(one.regime or "", ""))
        unique = str(one.unique_answers)
        table.add_row(one.sampler, *gains, f"{one.js_divergence:.3f}", unique, regime)
    return table


def _votes(response: "DiagnoseResponse") -> "Table":
    from rich.text import Text

    curves = [(one.sampler, one.vote_curve) for one in response.samplers]
    table = _table("sampler", *(str(point.budget) for point in curves[0][1]))
    for sampler, curve in curves:
        cells = [
            Text(
                f"{point.answer or '–'} {_level(point.share, 1.0)}",
                style="green" if point.majority_correct else "",
            )
            for point in curve
        ]
        table.add_row(sampler, *cells)
    return table


def _snr(learned: "list[SamplerDiagnosisOut]") -> "Table":
    most = max(value for one in learned for value in one.snr or ())
    table = _table("sampler", "", "from", "to")
    for one in learned:
        values = one.snr or []
        line = "".join(_level(value, most) for value in values)
        table.add_row(one.sampler, line, f"{values[0]:.2f}", f"{values[-1]:.2f}")
    return table


def _table(first: str, *others: str) -> "Table":
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column(first, overflow="fold")
    for title in others:
        table.add_column(title, justify="right", no_wrap=True)
    return table


def _level(value: float, most: float) -> str:
    """One of eight heights, for a value from 0 to `most`."""
    share = value / most if most > 0 else 0.0
    return _LEVELS[min(len(_LEVELS) - 1, int(share * len(_LEVELS)))]


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
