"""What a trajectory is must not depend on its budget, its batch-mates or its padding."""

from collections.abc import Sequence

import pytest
import torch

from latent.lanes import LaneCache
from latent.reasoner import Reasoner
from latent.rollout import Ask, Rollout, rollout
from latent.trajectory import Trajectory
from tests.reasoners import QUESTIONS, make_reasoner, make_spelling_reasoner
from tests.samplers import make_sampler

SAMPLERS = ("dropout:0.3", "gaussian:0.7", "gts")


def ask(reasoner: Reasoner, question: str, budget: int, seed: int = 5) -> Ask:
    return Ask(reasoner.encode(question), seed, tuple(range(budget)))


def solo(reasoner: Reasoner, spec: str, question: str, budget: int, **options: object) -> Rollout:
    sampler = make_sampler(spec, reasoner.width, reasoner.dtype)
    return rollout(reasoner, sampler, [ask(reasoner, question, budget)], **options)[0]  # type: ignore[arg-type]


def assert_same(
    reasoner: Reasoner, left: Sequence[Trajectory], right: Sequence[Trajectory]
) -> None:
    """Hold two runs to what the machine can promise of them: every bit, or every token."""
    promise = reasoner.reproducibility
    print(f"reproducible: {promise.kind}; {promise.reason}")
    if promise.kind == "bits":
        assert left == right, "texts, tokens and log-probabilities"
        return
    for one, other in zip(left, right, strict=True):
        assert one.tokens == other.tokens
        assert one.token_logprobs == pytest.approx(other.token_logprobs, abs=1e-4)


@pytest.mark.parametrize("spec", SAMPLERS)
@pytest.mark.parametrize("is_int8", [False, True], ids=["fp32", "int8"])
@pytest.mark.parametrize("architecture", ["gpt2", "llama"])
def test_a_budget_of_8_is_a_prefix_of_64(architecture: str, is_int8: bool, spec: str) -> None:
    reasoner = make_reasoner("coconut", architecture, dtype=torch.float32, is_int8=is_int8)
    small = solo(reasoner, spec, QUESTIONS[0], 8)
    large = solo(reasoner, spec, QUESTIONS[0], 64)
    assert_same(reasoner, small.trajectories, large.trajectories[:8])
    assert len({t.tokens for t in large.trajectories}) > 8


@pytest.mark.parametrize("spec", SAMPLERS)
@pytest.mark.parametrize("is_int8", [False, True], ids=["fp32", "int8"])
@pytest.mark.parametrize("kind", ["coconut", "codi"])
def test_batch_mates_and_their_order_change_no_bit(kind: str, is_int8: bool, spec: str) -> None:
    reasoner = make_reasoner(kind, "llama", dtype=torch.float32, is_int8=is_int8)
    sampler = make_sampler(spec, reasoner.width, reasoner.dtype)
    asks = [
        ask(reasoner, q, n, seed=n)
        for q, n in zip(QUESTIONS * 2, (3, 40, 1, 16, 2, 7, 64, 5), strict=True)
    ]
    alone = [rollout(reasoner, sampler, [a])[0] for a in asks]
    together = rollout(reasoner, sampler, asks)
    backwards = rollout(reasoner, sampler, asks[::-1])[::-1]
    in_small_passes = rollout(reasoner, sampler, asks, lane_limit=32)
    for batch in (together, backwards, in_small_passes):
        for left, right in zip(alone, batch, strict=True):
            assert_same(reasoner, left.trajectories, right.trajectories)


@pytest.mark.parametrize("is_int8", [False, True], ids=["fp32", "int8"])
def test_batch_mates_change_no_sampled_text(is_int8: bool) -> None:
    reasoner = make_reasoner("cot", "llama", dtype=torch.float32, is_int8=is_int8)
    sampler = make_sampler("token:0.7", reasoner.width, reasoner.dtype)
    asks = [ask(reasoner, q, n, seed=n) for q, n in zip(QUESTIONS, (3, 40, 1, 16), strict=True)]
    together = rollout(reasoner, sampler, asks)
    for own, batched in zip(asks, together, strict=True):
        assert_same(
            reasoner, rollout(reasoner, sampler, [own])[0].trajectories, batched.trajectories
        )


def test_batch_mates_change_no_likelihood_of_thoughts_that_a_calculator_reads() -> None:
    reasoner = make_spelling_reasoner(calculator=True, dtype=torch.float32)
    sampler = make_sampler("gaussian:0.1", reasoner.width, reasoner.dtype)
    asks = [ask(reasoner, q, n, seed=n) for q, n in zip(QUESTIONS, (3, 40, 1, 16), strict=True)]
    together = rollout(reasoner, sampler, asks)
    for own, batched in zip(asks, together, strict=True):
        alone = rollout(reasoner, sampler, [own])[0].trajectories
        assert_same(reasoner, alone, batched.trajectories)
        chains = [each.chain_logprob for each in alone]
        assert None not in chains
        assert chains == pytest.approx([each.chain_logprob for each in batched.trajectories])


def test_padding_changes_no_result() -> None:
    """A prompt that fills its bucket and the same weights with a larger bucket agree."""
    reasoner = make_reasoner("coconut", "gpt2")
    sampler = make_sampler("dropout:0.3")
    prompt = reasoner.encode(QUESTIONS[1])[:32]
    exact = rollout(reasoner, sampler, [Ask(prompt, 1, tuple(range(6)))])[0]
    wide = reasoner.prefill([(*prompt, *prompt[:9])])[0]
    kv = wide.kv.clone()
    kv[..., 32:, :] = 1e3  # whatever stands in the padding must not be seen
    padded = type(wide)(kv, len(prompt), exact.prefix.hidden)
    other = rollout(reasoner, sampler, [Ask(prompt, 1, tuple(range(6)), prefix=padded)])[0]
    for left, right in zip(exact.trajectories, other.trajectories, strict=True):
        assert left.tokens == right.tokens
        assert left.token_logprobs == pytest.approx(right.token_logprobs, abs=1e-10)


def test_a_prefix_handed_in_is_not_prefilled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    reasoner = make_reasoner("coconut", "gpt2", dtype=torch.float32)
    sampler = make_sampler("gaussian", dtype=torch.float32)
    first = rollout(reasoner, sampler, [ask(reasoner, QUESTIONS[0], 4)])[0]
    monkeypatch.setattr(reasoner, "prefill", lambda prompts: pytest.fail("prefilled again"))
    again = Ask(reasoner.encode(QUESTIONS[0]), 5, tuple(range(4, 8)), prefix=first.prefix)
    second = rollout(reasoner, sampler, [again])[0]
    assert second.timing.prefill == 0.0
    assert [t.index for t in second.trajectories] == [4, 5, 6, 7]


@pytest.mark.parametrize(("budgets", "rows"), [((1,), 16), ((3, 1), 16), ((13, 2, 5), 32)])
def test_a_pass_runs_in_whole_blocks_of_rows(
    monkeypatch: pytest.MonkeyPatch, budgets: tuple[int, ...], rows: int
) -> None:
    reasoner = make_reasoner("coconut", "gpt2", dtype=torch.float32)
    seen: set[int] = set()
    step = reasoner.step
    monkeypatch.setattr(
        reasoner, "step", lambda inputs, *rest: (seen.add(len(inputs)), step(inputs, *rest))[1]
    )
    asks = [ask(reasoner, QUESTIONS[0], n, seed=n) for n in budgets]
    done = rollout(reasoner, make_sampler("gaussian"), asks)
    assert max(seen) == rows
    assert all(count % 16 == 0 for count in seen)
    assert [len(one.trajectories) for one in done] == list(budgets)


def test_prompt_memory_does_not_grow_with_the_budget() -> None:
    reasoner = make_reasoner("coconut", "gpt2", dtype=torch.float32)
    prefix = reasoner.prefill([reasoner.encode(QUESTIONS[1])])[0]
    held = {LaneCache([prefix], [n], capacity=4).prompt_bytes for n in (2, 16, 128)}
    assert held == {prefix.kv.nbytes}


def test_the_vocabulary_head_runs_for_answer_tokens_only(monkeypatch: pytest.MonkeyPatch) -> None:
    reasoner = make_reasoner("coconut", "gpt2", dtype=torch.float32)
    rows: list[int] = []
    head = reasoner.logits
    monkeypatch.setattr(
        reasoner, "logits", lambda hidden: (rows.append(len(hidden)), head(hidden))[1]
    )
    done = solo(reasoner, "gaussian", QUESTIONS[0], 32)
    assert len(rows) == max(len(t.tokens) for t in done.trajectories)
    assert rows[0] == 32


def test_finished_lanes_leave_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    reasoner = make_reasoner("coconut", "gpt2", dtype=torch.float32)
    lengths = [len(t.tokens) for t in solo(reasoner, "gaussian:3", QUESTIONS[0], 64).trajectories]
    # End-of-text is made of the most frequent first tokens, so that many lanes end early.
    firsts = {t.tokens[0] for t in solo(reasoner, "gaussian:3", QUESTIONS[0], 40).trajectories}
    reasoner = make_reasoner("coconut", "gpt2", dtype=torch.float32, eos_ids=tuple(firsts))
    rows: list[int] = []
    head = reasoner.logits
    monkeypatch.setattr(
        reasoner, "logits", lambda hidden: (rows.append(len(hidden)), head(hidden))[1]
    )
    done = solo(reasoner, "gaussian:3", QUESTIONS[0], 64)
    going = sum(len(t.tokens) > 1 for t in done.trajectories)
    assert 0 < going < 48, "the set-up must let some lanes end at once and others not"
    assert rows[1] == -(-going // 16) * 16
    assert max(lengths) > 1
