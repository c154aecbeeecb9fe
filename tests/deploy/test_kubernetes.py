"""What the Kubernetes overlays promise: nobody is cut off, nothing is allowed that is not needed."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.files import DEPLOY, exposed_labels, flag_variables
from tests.deploy.kustomize import build

_OVERLAYS = ("cpu", "cuda")
_LAST_WORDS_SECONDS = 2  # what the server takes after the drain


@pytest.fixture(params=_OVERLAYS)
def folder(request: pytest.FixtureRequest) -> Path:
    return DEPLOY / "kubernetes" / "overlays" / str(request.param)


@pytest.fixture
def objects(folder: Path) -> dict[str, Any]:
    return {x["kind"]: x for x in build(folder)}


@pytest.fixture
def pod(objects: dict[str, Any]) -> Any:
    return objects["Deployment"]["spec"]["template"]["spec"]


@pytest.fixture
def container(pod: Any) -> Any:
    (only,) = pod["containers"]
    return only


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_the_stand_in_builds_what_kustomize_builds(folder: Path) -> None:
    text = subprocess.run(
        ["kubectl", "kustomize", folder], capture_output=True, text=True, check=True
    ).stdout
    text = re.sub(r"(gts-settings)-[a-z0-9]{10}\b", r"\1", text)
    theirs = {x["kind"]: x for x in yaml.safe_load_all(text)}
    assert {x["kind"]: x for x in build(folder)} == theirs


def test_a_pod_has_time_for_its_drain(objects: dict[str, Any], pod: Any, container: Any) -> None:
    command, seconds = container["lifecycle"]["preStop"]["exec"]["command"]
    assert command == "sleep"
    drain = float(objects["ConfigMap"]["data"]["GTS_DRAIN_SECONDS"])
    assert pod["terminationGracePeriodSeconds"] > int(seconds) + drain + _LAST_WORDS_SECONDS


def test_every_setting_is_one_that_the_server_reads(objects: dict[str, Any], pod: Any) -> None:
    assert objects["ConfigMap"]["data"].keys() <= flag_variables()
    assert pod["enableServiceLinks"] is False  # the Service's own GTS_PORT would be read as ours


def test_probes_follow_the_worker_and_liveness_only_the_process(container: Any) -> None:
    paths = {
        kind: container[f"{kind}Probe"]["httpGet"]["path"]
        for kind in ("startup", "readiness", "liveness")
    }
    assert paths == {"startup": "/readyz", "readiness": "/readyz", "liveness": "/livez"}
    names = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert {container[f"{kind}Probe"]["httpGet"]["port"] for kind in paths} == names.keys()


def test_the_port_is_the_same_everywhere(objects: dict[str, Any], container: Any) -> None:
    (port,) = container["ports"]
    assert str(port["containerPort"]) == objects["ConfigMap"]["data"]["GTS_PORT"]
    assert objects["Service"]["spec"]["ports"][0]["targetPort"] == port["name"]
    assert objects["NetworkPolicy"]["spec"]["ingress"][0]["ports"][0]["port"] == port["name"]


def test_a_pod_may_do_nothing_that_it_need_not(pod: Any, container: Any) -> None:
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert [mount["mountPath"] for mount in container["volumeMounts"]] == ["/tmp"]


def test_the_autoscaler_follows_a_metric_that_exists(objects: dict[str, Any]) -> None:
    spec = objects["HorizontalPodAutoscaler"]["spec"]
    (metric,) = spec["metrics"]
    assert metric["pods"]["metric"]["name"] in exposed_labels()
    assert spec["scaleTargetRef"]["name"] == objects["Deployment"]["metadata"]["name"]
    assert "replicas" not in objects["Deployment"]["spec"]
    assert int(metric["pods"]["target"]["averageValue"]) < int(
        objects["ConfigMap"]["data"].get("GTS_WAITING_LANES", 8192)
    ), "it would scale only after requests are refused"


def test_an_upgrade_or_an_eviction_leaves_a_replica(objects: dict[str, Any]) -> None:
    kept = objects["HorizontalPodAutoscaler"]["spec"]["minReplicas"]
    assert kept > objects["PodDisruptionBudget"]["spec"]["maxUnavailable"]
    assert kept > objects["Deployment"]["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"]


def test_everything_selects_the_pods(objects: dict[str, Any]) -> None:
    labels = objects["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert objects["Deployment"]["spec"]["selector"]["matchLabels"] == labels
    assert objects["Service"]["spec"]["selector"] == labels
    assert objects["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    assert objects["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == labels


def test_threads_leave_a_core_to_the_api_process(objects: dict[str, Any], container: Any) -> None:
    cores = int(container["resources"]["requests"]["cpu"])
    assert int(objects["ConfigMap"]["data"]["GTS_THREADS"]) == cores - 1
    memory = container["resources"]["requests"]["memory"]
    assert container["resources"]["limits"]["memory"] == memory
