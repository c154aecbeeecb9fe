"""The deployment files as data, and what they may name: settings and metrics of the service."""

from pathlib import Path
from typing import Any, get_type_hints

import yaml
from prometheus_client.parser import text_string_to_metric_families

from cli.serve import serve_command
from latent.zoo import DEFAULT_MODEL
from service.metrics import Metrics
from service.models import Catalog

__all__ = ["DEPLOY", "ROOT", "exposed_labels", "flag_variables", "read_yaml"]

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def read_yaml(path: Path) -> Any:
    """Read one document."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def flag_variables() -> set[str]:
    """The environment variables that `gts serve` reads."""
    hints = get_type_hints(serve_command, include_extras=True)
    return {hint.__metadata__[0].envvar for name, hint in hints.items() if name != "return"}


def exposed_labels() -> dict[str, dict[str, set[str]]]:
    """Every series name of /metrics with its labels and, where they are fixed, their values."""
    metrics = Metrics(Catalog((DEFAULT_MODEL,)))
    for metric in vars(metrics).values():
        if names := getattr(metric, "_labelnames", ()):
            metric.labels(*names)  # a labelled metric shows nothing before its first use
    found: dict[str, dict[str, set[str]]] = {}
    for family in text_string_to_metric_families(metrics.render().decode()):
        for sample in family.samples:
            labels = found.setdefault(sample.name, {})
            for label, value in sample.labels.items():
                labels.setdefault(label, set()).add(value)
    return found
