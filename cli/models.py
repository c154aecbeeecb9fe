"""`gts models`: which reasoners there are, and what samplers they carry."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.options import Json


def models_command(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(help="Reasoner or panel folders to list besides the embedded ones."),
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Load each one and measure what a seed promises on this machine."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """List the embedded reasoners and panels, and any folders given: kind, samplers, fingerprint.

    With --check also whether it loads, its `dtype`, and `reproducible`: `bits` if one seed gives the
    same bits in any batch, `tokens` if rounding may differ.

    [bold]Examples[/bold]

    gts models

    gts models ./my-coconut --check --json
    """
    from latent.zoo import embedded_models, embedded_panels, find_panel, resolve_model

    given = {folder.name: find_panel(str(folder)) for folder in folders or ()}
    found = {name: folder for name, folder in embedded_models().items() if _has_base(folder)}
    found |= {each.name: resolve_model(str(each)) for each in folders or () if not given[each.name]}
    panels = {name: folder for name, folder in embedded_panels().items() if _has_bases(folder)}
    panels |= {name: folder for name, folder in given.items() if folder}
    listed = [_describe(name, folder) for name, folder in found.items()]
    if check:
        _check(listed)
    listed += [_describe_panel(name, folder) for name, folder in panels.items()]
    if as_json:
        typer.echo(json.dumps(listed, indent=2))
    else:
        _print(listed)


def _has_base(folder: Path) -> bool:
    """Whether an embedded reasoner can be loaded here; say on standard error what it would need."""
    from latent.errors import NotFoundError
    from latent.folders import check_base

    try:
        check_base(folder)
    except NotFoundError as error:
        typer.echo(f"not listed: {error}", err=True)
        return False
    return True


def _has_bases(panel: Path) -> bool:
    """Whether all reasoners of an embedded panel can be loaded here."""
    from latent.errors import NotFoundError
    from latent.folders import check_base
    from latent.panel_file import read_panel

    try:
        for reasoner in read_panel(panel).reasoners:
            check_base(reasoner)
    except NotFoundError:  # the reasoner itself was named before
        return False
    return True


def _describe(name: str, folder: Path) -> dict[str, Any]:
    """What the files say; hashes the weights, loads nothing."""
    from latent.folders import fingerprint, read_format, read_sampler_card, sampler_folders

    format = read_format(folder)
    samplers = {name: read_sampler_card(path) for name, path in sampler_folders(folder).items()}
    return {
        "name": name,
        "kind": format.kind,
        "thoughts": format.thoughts,
        "samplers": {name: card.results for name, card in samplers.items()},
        "results": format.provenance.get("results", {}),
        "fingerprint": fingerprint(folder),
        "folder": str(folder),
    }


def _check(listed: list[dict[str, Any]]) -> None:
    """Load each reasoner, compare the bits of one seed in several batches, and add the result."""
    from rich.console import Console
    from rich.progress import track

    import latent

    notes = Console(stderr=True)
    # A progress bar, on standard error if that is a terminal.
    for model in track(
        listed, "checking …", console=notes, transient=True, disable=not notes.is_terminal
    ):
        reasoner = latent.load(model["folder"])
        promise = reasoner.reproducibility
        model |= {
            "dtype": reasoner.precision,
            "reproducible": promise.kind,
            "reproducible_reason": promise.reason,
        }


def _describe_panel(name: str, folder: Path) -> dict[str, Any]:
    from latent.panel_file import read_panel

    panel = read_panel(folder).panel
    members = [{"member": one.label, "share": one.share} for one in panel.members]
    return {
        "name": name,
        "kind": "panel",
        "members": members,
        "split": panel.split,
        "sure": panel.sure,
        "folder": str(folder),
    }


def _print(listed: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    from latent.folders import sampler_spec

    if not listed:
        typer.echo(
            "no reasoners are embedded; give a reasoner folder, or import one: gts import --help"
        )
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    is_checked = any("reproducible" in model for model in listed)
    titles = ("name", "kind", "thoughts", "samplers", "fingerprint")
    for title in (*titles, "dtype", "reproducible") if is_checked else titles:
        table.add_column(title)
    for model in listed:
        if model["kind"] == "panel":
            members = ", ".join(one["member"] for one in model["members"])
            table.add_row(model["name"], "panel", "-", members, "-", *["-"] * 2 * is_checked)
            continue
        names = map(sampler_spec, model["samplers"])
        table.add_row(
            model["name"],
            model["kind"],
            str(model["thoughts"]),
            ", ".join(names) or "-",
            model["fingerprint"][:12],
            *([model["dtype"], model["reproducible"]] if is_checked else []),
        )
    Console().print(table)
