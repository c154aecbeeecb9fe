"""What the metrics count of a round, and their labels."""

from decimal import Decimal
from pathlib import Path

import pytest

from latent.specs import SamplerSpec
from latent.trajectory import Timing, Trajectory
from service.engine.messages import Failure, LaneReport, RoundReport, RoundTask, Task
from service.metrics import Metrics, kind_of
from service.models import Catalog

SPECS = [
    "deterministic",
    "dropout:0.1@embedding+attention",
    "gaussian",
    "gts",
    "gts:big",
    "token:2",
]


@pytest.mark.parametrize("text", SPECS)
def test_the_label_of_a_sampler_is_the_kind_of_its_spec(text: str) -> None:
    spec = SamplerSpec.parse(text)
    assert kind_of(str(spec)) == spec.kind


def test_a_round_counts_its_trajectories_and_parses_no_spec(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = Metrics(Catalog([str(folder)]))

    def parse(text: str) -> SamplerSpec:
        raise AssertionError(f"{text} was parsed on the event loop")

    monkeypatch.setattr(SamplerSpec, "parse", parse)
    answers = (Decimal(7), Decimal(8), None)
    lanes = tuple(Trajectory(n, "", answer, 0.0, (), (), None) for n, answer in enumerate(answers))
    good = LaneReport(lanes, (1, 1, 1), 5, Timing(), snr=(0.5, 0.25))
    tasks = (Task("good", "?", 0, (0, 1, 2)), Task("bad", "?", 0, (0,)))
    round = RoundTask(0, ("solve", "counting", "gts:big"), tasks, 64)
    results: dict[str, LaneReport | Failure] = {"good": good, "bad": Failure("no")}
    metrics.observe_round(round, RoundReport(0, results, 0.5))

    def value(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(f"gts_{name}", labels)

    assert value("trajectories_total", sampler="gts", outcome="parsed") == 2
    assert value("trajectories_total", sampler="gts", outcome="unparsable") == 1
    assert value("thought_snr", model="counting", thought="2") == 0.25
    assert value("round_lanes_sum") == 4
