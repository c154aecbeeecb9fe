"""`gts serve`: the HTTP service. Every flag is also an environment variable."""

from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["serve_command"]


def _flag(name: str, text: str, *more: str) -> Any:
    # Brackets are markup to the help, and would be left out.
    shown = text.replace("[", r"\[")
    return typer.Option(
        f"--{name}", *more, envvar=f"GTS_{name.upper().replace('-', '_')}", help=shown
    )


def serve_command(
    model: Annotated[
        list[str] | None,
        _flag("model", "An embedded reasoner or a folder; repeat it for several.", "-m"),
    ] = None,
    host: Annotated[str | None, _flag("host", "The address to listen on [127.0.0.1].")] = None,
    port: Annotated[int | None, _flag("port", "The port [8000].")] = None,
    device: Annotated[
        list[str] | None, _flag("device", "auto, cpu, cuda or cuda:1; one worker for each [auto].")
    ] = None,
    dtype: Annotated[str | None, _flag("dtype", "auto, fp32, bf16 or fp16 [auto].")] = None,
    threads: Annotated[
        int | None, _flag("threads", "CPU threads of a worker [the cores less one].")
    ] = None,
    lane_limit: Annotated[int | None, _flag("lane-limit", "Lanes in a round [256].")] = None,
    round_seconds: Annotated[
        float | None, _flag("round-seconds", "How long a round may take, about [0.5].")
    ] = None,
    hang_seconds: Annotated[
        float | None,
        _flag("hang-seconds", "After how long a worker stuck in a round is replaced [300]."),
    ] = None,
    waiting_lanes: Annotated[
        int | None, _flag("waiting-lanes", "Lanes that may wait before requests get a 429 [8192].")
    ] = None,
    max_budget: Annotated[int | None, _flag("max-budget", "The largest budget [256].")] = None,
    max_question_chars: Annotated[
        int | None, _flag("max-question-chars", "The longest question [20000].")
    ] = None,
    max_questions: Annotated[
        int | None, _flag("max-questions", "The longest list of questions [64].")
    ] = None,
    max_body_bytes: Annotated[
        int | None, _flag("max-body-bytes", "The largest body [1048576].")
    ] = None,
    max_samplers: Annotated[
        int | None, _flag("max-samplers", "The most samplers in a /diagnose [8].")
    ] = None,
    prefix_cache_mib: Annotated[
        int | None, _flag("prefix-cache-mib", "Memory for prefilled questions [256].")
    ] = None,
    drain_seconds: Annotated[
        float | None, _flag("drain-seconds", "How long open requests get after SIGTERM [30].")
    ] = None,
    heartbeat_seconds: Annotated[
        float | None, _flag("heartbeat-seconds", "The longest silence of a stream [15].")
    ] = None,
    token_file: Annotated[
        Path | None, _flag("token-file", "Bearer tokens, one a line; then all but probes need one.")
    ] = None,
    protect_metrics: Annotated[
        bool | None, _flag("protect-metrics", "Ask for a token on /metrics too.")
    ] = None,
    log_format: Annotated[
        str | None, _flag("log-format", "json, text or auto (text at a terminal) [auto].")
    ] = None,
    log_questions: Annotated[
        bool | None, _flag("log-questions", "Put questions into the log.")
    ] = None,
) -> None:
    """Serve reasoners over HTTP: POST /solve, POST /diagnose, /v1/models, /metrics, /docs.

    [bold]Examples[/bold]

    gts serve

    gts serve --model ./my-coconut --device cuda:0 --device cuda:1 --port 9000 --token-file tokens
    """
    from pydantic import ValidationError

    from latent.errors import InputError
    from service.logs import set_up_logging
    from service.server import serve
    from service.settings import Settings, read_tokens

    given: dict[str, Any] = {
        "models": tuple(model) if model else None,
        "devices": tuple(device) if device else None,
        "host": host,
        "port": port,
        "dtype": dtype,
        "threads": threads,
        "lane_limit": lane_limit,
        "round_seconds": round_seconds,
        "hang_seconds": hang_seconds,
        "waiting_lanes": waiting_lanes,
        "max_budget": max_budget,
        "max_question_chars": max_question_chars,
        "max_questions": max_questions,
        "max_body_bytes": max_body_bytes,
        "max_samplers": max_samplers,
        "prefix_cache_mib": prefix_cache_mib,
        "drain_seconds": drain_seconds,
        "heartbeat_seconds": heartbeat_seconds,
        "tokens": read_tokens(token_file),
        "protect_metrics": protect_metrics,
        "log_format": log_format,
        "log_questions": log_questions,
    }
    try:
        settings = Settings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        name = "--" + str(first["loc"][0]).replace("_", "-") if first["loc"] else "settings"
        raise InputError(f"{name}: {first['msg']}") from error
    set_up_logging(settings.log_format)
    serve(settings)
