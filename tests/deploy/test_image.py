"""The Dockerfile, Compose and Kubernetes agree with the project and with one another."""

import re
import tomllib

from tests.deploy.files import DEPLOY, ROOT, flag_variables, read_yaml
from tests.deploy.kustomize import build

_DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
_PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_image_has_every_package_and_nothing_is_ignored_that_it_copies() -> None:
    packages = {
        name.rstrip("*") for name in _PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]
    }
    copied = set(re.findall(r"^COPY (\w+) \1$", _DOCKERFILE, re.MULTILINE))
    assert copied == packages
    allowed = {
        line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[0] == "!"
    }
    files = {
        name
        for names in re.findall(r"^COPY (.*) \./$", _DOCKERFILE, re.MULTILINE)
        for name in names.split()
    }
    assert allowed == packages | files


def test_one_user_id_everywhere() -> None:
    (uid,) = re.findall(r"^USER (\d+):\1$", _DOCKERFILE, re.MULTILINE)
    (checked,) = re.findall(r"\buid=(\d+)", (DEPLOY / "check-image").read_text())
    objects = {x["kind"]: x for x in build(DEPLOY / "kubernetes" / "overlays" / "cpu")}
    context = objects["Deployment"]["spec"]["template"]["spec"]["securityContext"]
    assert {uid, checked} == {str(context["runAsUser"])} == {str(context["runAsGroup"])}


def test_one_version_everywhere() -> None:
    version = _PROJECT["project"]["version"]
    assert re.findall(r"\bVERSION=(\S+)", _DOCKERFILE) == [version]
    for overlay, tag in (("cpu", version), ("cuda", f"{version}-cuda")):
        objects = {x["kind"]: x for x in build(DEPLOY / "kubernetes" / "overlays" / overlay)}
        (container,) = objects["Deployment"]["spec"]["template"]["spec"]["containers"]
        assert container["image"] == f"gts:{tag}"


def test_the_images_and_composes_settings_are_ones_that_the_server_reads() -> None:
    assert set(re.findall(r"\b(GTS_\w+)=", _DOCKERFILE)) <= flag_variables() | {"GTS_CACHE"}
    environment = read_yaml(DEPLOY / "compose.yaml")["services"]["gts"]["environment"]
    assert environment.keys() <= flag_variables()


def test_compose_waits_for_the_drain_and_mounts_files_that_exist() -> None:
    services = read_yaml(DEPLOY / "compose.yaml")["services"]
    grace = int(services["gts"]["stop_grace_period"].removesuffix("s"))
    assert grace > float(services["gts"]["environment"]["GTS_DRAIN_SECONDS"]) + 2
    mounted = [v.split(":")[0] for s in services.values() for v in s["volumes"] if v[0] == "."]
    assert len(mounted) == 3
    assert all((DEPLOY / path).is_dir() for path in mounted)
    (target,) = read_yaml(DEPLOY / "prometheus" / "prometheus.yml")["scrape_configs"][0][
        "static_configs"
    ][0]["targets"]
    assert target.split(":") == ["gts", services["gts"]["ports"][0].split(":")[1]]
