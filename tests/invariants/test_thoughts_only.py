"""Dropout and noise touch only the thoughts; the probe leaves no trace."""

import pytest
import torch

from latent.dropout import DropoutMasks
from latent.lanes import LaneCache
from latent.reasoner import Reasoner
from latent.rollout import Ask, rollout
from latent.samplers import Sampler
from latent.specs import SamplerSpec
from tests.reasoners import QUESTIONS, make_reasoner
from tests.samplers import make_sampler


class Replay(Sampler):
    """Adds given perturbations, thought by thought, in the place of drawn ones."""

    def __init__(self, perturbations: torch.Tensor) -> None:
        super().__init__(SamplerSpec.parse("gaussian"))
        self.thoughts = iter(perturbations.unbind(1))  # K × (N, D)

    def perturb(self, context: torch.Tensor, epsilon: torch.Tensor) -> torch.Tensor:
        return next(self.thoughts)


@pytest.mark.parametrize("spec", ["gaussian:0.7", "gts"])
def test_answers_are_bit_for_bit_those_of_the_same_thoughts_replayed(spec: str) -> None:
    reasoner = make_reasoner("codi", "llama", dtype=torch.float32)
    asks = [Ask(reasoner.encode(QUESTIONS[0]), 3, tuple(range(16)))]
    sampler = make_sampler(spec, dtype=torch.float32)
    drawn = rollout(reasoner, sampler, asks, keep_thoughts=True)[0]
    assert drawn.perturbations is not None
    replayed = rollout(reasoner, Replay(drawn.perturbations), asks)[0]
    assert replayed.trajectories == drawn.trajectories


@pytest.mark.parametrize("kind", ["coconut", "codi"])
def test_dropout_is_asked_for_in_thought_passes_only(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reasoner = make_reasoner(kind, "gpt2", dtype=torch.float32)
    passes: list[tuple[int, bool]] = []
    step = Reasoner.step

    def spy(
        self: Reasoner,
        inputs: torch.Tensor,
        cache: LaneCache,
        slot: int,
        masks: DropoutMasks | None = None,
    ) -> torch.Tensor:
        passes.append((slot, masks is not None))
        return step(self, inputs, cache, slot, masks)

    monkeypatch.setattr(Reasoner, "step", spy)
    sampler = make_sampler("dropout:0.3")
    dropped = rollout(reasoner, sampler, [Ask(reasoner.encode(QUESTIONS[0]), 3, (0, 1, 2, 3))])[0]
    thoughts = reasoner.format.thoughts
    assert [masked for slot, masked in passes] == [slot < thoughts for slot, _ in passes]
    assert len(passes) > thoughts + 1
    plain = rollout(
        reasoner, make_sampler("deterministic"), [Ask(reasoner.encode(QUESTIONS[0]), 3, (-1,))]
    )
    assert torch.equal(dropped.prefix.kv, plain[0].prefix.kv), "prefill never drops"


def test_the_deterministic_trajectory_is_the_same_under_every_sampler() -> None:
    reasoner = make_reasoner("codi", "gpt2", dtype=torch.float32)
    asks = [Ask(reasoner.encode(QUESTIONS[1]), 3, (-1, 0, 1, 2))]
    found = {
        rollout(reasoner, make_sampler(spec, dtype=torch.float32), asks)[0].trajectories[0]
        for spec in ("deterministic", "dropout:0.4", "gaussian:0.5", "gts")
    }
    assert len(found) == 1


@pytest.mark.parametrize(
    ("kind", "spec"), [("coconut", "gts"), ("codi", "dropout:0.3"), ("cot", "token:1.2")]
)
def test_the_probe_changes_no_trajectory(kind: str, spec: str) -> None:
    reasoner = make_reasoner(kind, "gpt2", dtype=torch.float32)
    sampler = make_sampler(spec, dtype=torch.float32)
    asks = [Ask(reasoner.encode(QUESTIONS[n]), 3, (-1, 0, 1, 2), target=(5, 9, 0)) for n in (0, 2)]
    plain = rollout(reasoner, sampler, asks)
    probed = rollout(reasoner, sampler, asks, with_probe=True)
    assert [done.trajectories for done in probed] == [done.trajectories for done in plain]


def test_fewer_sites_perturb_only_the_first_thoughts() -> None:
    reasoner = make_reasoner("coconut", "gpt2")
    asks = [Ask(reasoner.encode(QUESTIONS[0]), 3, (0, 1, 2, 3))]
    done = rollout(reasoner, make_sampler("gaussian"), asks, sites=2, keep_thoughts=True)[0]
    assert done.perturbations is not None
    assert done.perturbations.abs().amax((0, 2)).gt(0).tolist() == [True, True, False]
