"""Alerts, panels and the autoscaler ask only for what the service's own /metrics has."""

import json
import re
from collections.abc import Iterator

import pytest

from tests.deploy.files import DEPLOY, exposed_labels, read_yaml

_SCRAPED = {"job", "instance", "namespace", "pod"}  # set by Prometheus, not by the service
_METRIC = re.compile(r"\bgts_[a-z_]+\b(?:\{([^}]*)\})?")
_SELECTOR = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"([^"]*)"')
_GROUPING = re.compile(r"\b(?:by|ignoring)\s*\(([^)]*)\)")
_LEGEND = re.compile(r"\{\{(\w+)\}\}")


def _rules() -> Iterator[tuple[str, str, str]]:
    for group in read_yaml(DEPLOY / "prometheus" / "rules.yml")["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"], ""


def _panels() -> Iterator[tuple[str, str, str]]:
    for path in sorted((DEPLOY / "grafana" / "dashboards").glob("*.json")):
        for panel in json.loads(path.read_text(encoding="utf-8"))["panels"]:
            for target in panel.get("targets", ()):
                yield f"{panel['title']} {target['refId']}", target["expr"], target["legendFormat"]


def _autoscaler() -> Iterator[tuple[str, str, str]]:
    for rule in read_yaml(DEPLOY / "kubernetes" / "prometheus-adapter.yaml")["rules"]["custom"]:
        yield "prometheus-adapter", rule["seriesQuery"], ""


_QUERIES = [*_rules(), *_panels(), *_autoscaler()]
_EXPOSED = exposed_labels()


@pytest.mark.parametrize(
    ("expression", "legend"), [pytest.param(*q[1:], id=q[0]) for q in _QUERIES]
)
def test_a_query_names_only_series_labels_and_buckets_that_exist(
    expression: str, legend: str
) -> None:
    used = list(_METRIC.finditer(expression))
    assert used, "a query that asks the service nothing"
    own: set[str] = set()
    for match in used:
        name = match.group(0).partition("{")[0]
        assert name in _EXPOSED
        labels = _EXPOSED[name]
        own |= labels.keys()
        for label, value in _SELECTOR.findall(match.group(1) or ""):
            assert label in labels.keys() | _SCRAPED
            assert label != "le" or value in labels["le"]
    named = {x.strip() for group in _GROUPING.findall(expression) for x in group.split(",")}
    assert named | set(_LEGEND.findall(legend)) <= own | _SCRAPED


def test_every_question_of_the_dashboard_has_panels_with_queries() -> None:
    dashboard = json.loads((DEPLOY / "grafana" / "dashboards" / "gts.json").read_text())
    rows = [panel["title"] for panel in dashboard["panels"] if panel["type"] == "row"]
    assert [title.split()[0] for title in rows] == ["Is", "How", "What", "How", "Which"]
    source = read_yaml(DEPLOY / "grafana" / "provisioning" / "datasources" / "prometheus.yml")
    uid = source["datasources"][0]["uid"]
    for panel in dashboard["panels"]:
        assert panel["type"] == "row" or (panel["targets"] and panel["datasource"]["uid"] == uid)


def test_every_alert_has_a_test_and_says_what_to_do() -> None:
    rules = read_yaml(DEPLOY / "prometheus" / "rules.yml")["groups"][0]["rules"]
    tests = read_yaml(DEPLOY / "prometheus" / "rules_test.yml")["tests"]
    fired = {x["alertname"] for t in tests for x in t["alert_rule_test"] if x.get("exp_alerts")}
    quiet = {x["alertname"] for t in tests for x in t["alert_rule_test"] if not x.get("exp_alerts")}
    names = {rule["alert"] for rule in rules}
    assert fired == quiet == names
    headings = (DEPLOY.parent / "docs" / "operations.md").read_text(encoding="utf-8").splitlines()
    for rule in rules:
        assert rule["annotations"]["runbook"] == f"docs/operations.md#{rule['alert'].lower()}"
        assert f"### {rule['alert']}" in headings
