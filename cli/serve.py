"""`gts serve`: the HTTP service. Flags and environment variables are the fields of `Settings`."""

import inspect
from typing import Annotated, Any, get_origin

import typer

from service.settings import Settings, read_settings

__all__ = ["serve_command"]

_SHORT = {"models": ("-m",)}
_METAVARS: dict[Any, str | None] = {int: "<int>", float: "<float>", bool: None}  # as typer writes


def serve_command(**given: Any) -> None:
    """Serve reasoners over HTTP: a page to try them, the API, and OpenAI's endpoints.

    GET / is the page, and GET /docs describes POST /solve, POST /diagnose, POST /v1/chat/completions
    and the others.

    [bold]Examples[/bold]

    gts serve

    gts serve --model ./my-coconut --device cuda:0 --device cuda:1 --port 9000 --token-file tokens
    """
    from service.logs import set_up_logging
    from service.server import serve

    settings = read_settings(given, _flag)
    set_up_logging(settings.log_format)
    serve(settings)


def _is_repeated(name: str) -> bool:
    return get_origin(Settings.model_fields[name].annotation) is tuple


def _flag(name: str) -> str:
    """The flag of a field; a field of several values is a flag to repeat, in the singular."""
    singular = name.removesuffix("s") if _is_repeated(name) else name
    return f"--{singular.replace('_', '-')}"


def _parameter(name: str) -> inspect.Parameter:
    """The command's parameter for a field. Values stay text: the model checks them, in one line."""
    field, flag = Settings.model_fields[name], _flag(name)
    default = field.default
    kind: Any = str | None
    if _is_repeated(name):
        kind, default = list[str], list(default)
    elif field.annotation is bool:
        kind = bool
    elif default is not None:
        default = str(default).removesuffix(".0")
    option = typer.Option(
        flag,
        *_SHORT.get(name, ()),
        envvar="GTS" + flag.replace("-", "_")[1:].upper(),
        help=field.description,
        metavar=_METAVARS.get(field.annotation, "<str>"),
    )
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind, option],
    )


# Typer makes the options of a command from its signature.
_PARAMETERS = [_parameter(name) for name in Settings.model_fields]
serve_command.__signature__ = inspect.Signature(_PARAMETERS)  # type: ignore[attr-defined]
serve_command.__annotations__ = {each.name: each.annotation for each in _PARAMETERS}
