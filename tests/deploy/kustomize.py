"""Builds our overlays as kustomize does, for machines without it: only the fields that ours use.

    python -m tests.deploy.kustomize deploy/kubernetes/overlays/cpu

A generated ConfigMap gets no hash in its name.
"""

import copy
import sys
from pathlib import Path
from typing import Any

import yaml

__all__ = ["build"]

Manifest = dict[str, Any]

_KNOWN = {"apiVersion", "kind", "resources", "configMapGenerator", "patches", "images"}


def build(folder: Path) -> list[Manifest]:
    """The objects of a kustomization, its bases first, patched."""
    recipe = yaml.safe_load((folder / "kustomization.yaml").read_text())
    if unknown := recipe.keys() - _KNOWN:
        raise NotImplementedError(f"{folder}: {', '.join(sorted(unknown))}")
    objects: list[Manifest] = []
    for name in recipe["resources"]:
        path = folder / name
        objects += build(path) if path.is_dir() else [yaml.safe_load(path.read_text())]
    for made in recipe.get("configMapGenerator", ()):
        data = dict(literal.split("=", 1) for literal in made["literals"])
        if made.get("behavior") == "merge":
            _find(objects, "ConfigMap", made["name"])["data"].update(data)
        else:
            objects.append(_config_map(made["name"], data))
    for patch in recipe.get("patches", ()):
        change = yaml.safe_load((folder / patch["path"]).read_text())
        target = _find(objects, change["kind"], change["metadata"]["name"])
        target.update(_merged(target, change))
    for image in recipe.get("images", ()):
        for container in _containers(objects):
            name = container["image"].partition(":")[0]
            if name == image["name"]:
                container["image"] = f"{name}:{image['newTag']}"
    return objects


def _config_map(name: str, data: dict[str, str]) -> Manifest:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def _find(objects: list[Manifest], kind: str, name: str) -> Manifest:
    (found,) = (x for x in objects if x["kind"] == kind and x["metadata"]["name"] == name)
    return found


def _containers(objects: list[Manifest]) -> list[Manifest]:
    return [
        container
        for x in objects
        if x["kind"] == "Deployment"
        for container in x["spec"]["template"]["spec"]["containers"]
    ]


def _merged(old: Any, new: Any) -> Any:
    """Merge strategically: mappings by key, containers by name, any other list replaced whole."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return copy.deepcopy(new)
    result = {**old}
    for key, value in new.items():
        if key == "containers" and key in old:
            changes = {container["name"]: container for container in value}
            result[key] = [_merged(x, changes.get(x["name"], {})) for x in old[key]]
        else:
            result[key] = _merged(old.get(key), value)
    return result


if __name__ == "__main__":
    print(yaml.safe_dump_all(build(Path(sys.argv[1])), sort_keys=False))
