"""Tests of deploy/ray. Those marked `ray` start a cluster: .ci/ray runs them, not `make test`."""

from importlib.util import find_spec

if find_spec("ray") is None:
    collect_ignore = ["test_cluster.py"]
