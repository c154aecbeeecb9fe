"""The differentiable thought loop against one without a cache, layouts, and CODI's distillation."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from latent.reasoner import ProjectionMLP
from trainer.backbone.codi import Distillation, hidden_distance
from trainer.backbone.config import Architecture, BackboneConfig
from trainer.backbone.curriculum import Curriculum, Stage, plan_stages
from trainer.backbone.model import build_decoder
from trainer.backbone.thinking import Feedback, examine, identity, is_exact, think, token_loss
from trainer.data.corpus import IGNORED, Batch, Corpus, Example, make_batch, step_rng

START, END, EOS = 1, 2, 0
EXAMPLES = [
    Example((11, 12, 13), ((20, 21), (22, 23, 24)), (30, 31, 5, EOS)),
    Example((14, 15, 16), ((25,), (26,), (27,)), (30, 31, 6, 7, EOS)),
]


def _decoder(family: str, dropout: float = 0.0) -> PreTrainedModel:
    torch.manual_seed(0)
    shape = Architecture(family, width=16, layers=2, heads=4, mlp_width=24, dropout=dropout)
    return build_decoder(shape, tokens=40, eos=EOS)


def _stages(
    recipe: str, stage_steps: tuple[int, ...], settle_steps: int, **settings: Any
) -> tuple[Stage, ...]:
    config = BackboneConfig(recipe, stage_steps, settle_steps, **settings)  # type: ignore[arg-type]
    return plan_stages(config)


def _think_without_cache(model: PreTrainedModel, batch: Batch, feedback: Feedback) -> Tensor:
    embed = model.get_input_embeddings()
    sequence = embed(batch.prompt)
    for _ in range(batch.thoughts):
        states = model.base_model(inputs_embeds=sequence, use_cache=False).last_hidden_state
        sequence = torch.cat((sequence, feedback(states[:, -1:])), dim=1)
    sequence = torch.cat((sequence, embed(batch.inputs)), dim=1)
    logits: Tensor = model(inputs_embeds=sequence, use_cache=False).logits
    return logits[:, -batch.inputs.shape[1] :]


@pytest.mark.parametrize("family", ["gpt2", "llama"])
@pytest.mark.parametrize("thoughts", [0, 3])
def test_the_cached_loop_is_the_naive_loop_in_values_and_gradients(
    family: str, thoughts: int
) -> None:
    model = _decoder(family)
    projection = ProjectionMLP(16, 8)
    batch = make_batch(
        [(*e.question, START) for e in EXAMPLES], [e.answer for e in EXAMPLES], END, thoughts
    )
    gradients = []
    for loop in (think, _think_without_cache):
        model.zero_grad()
        logits = loop(model, batch, projection)
        token_loss(logits, batch.labels).backward()  # type: ignore[no-untyped-call]
        gradients.append(
            (logits.detach(), [p.grad.clone() for p in model.parameters() if p.grad is not None])
        )
    torch.testing.assert_close(gradients[0][0], gradients[1][0], atol=1e-5, rtol=1e-4)
    for ours, naive in zip(gradients[0][1], gradients[1][1], strict=True):
        torch.testing.assert_close(ours, naive, atol=1e-5, rtol=1e-3)


def test_thoughts_are_swapped_only_where_there_is_another_question_of_the_same_length() -> None:
    alone = Example((11, 12), (), (30, EOS))
    model = _decoder("llama")

    def swapped(examples: list[Example]) -> int:
        def lay_out(group: Sequence[Example]) -> Batch:
            prompts = [(*e.question, START) for e in group]
            return make_batch(prompts, [e.answer for e in group], END, 2)

        return examine(model, Corpus(examples), lay_out, lambda _: identity, "swapped").problems

    assert swapped([*EXAMPLES, alone]) == 2
    assert swapped([alone]) == 1


def test_thoughts_carry_gradients_back_to_the_feedback() -> None:
    model, projection = _decoder("llama"), ProjectionMLP(16, 8)
    batch = make_batch([(3, START)], [(4, EOS)], END, 2)
    token_loss(think(model, batch, projection), batch.labels).backward()  # type: ignore[no-untyped-call]
    assert projection.fc1.weight.grad is not None
    assert projection.fc1.weight.grad.abs().sum() > 0


def test_what_a_calculator_writes_is_fed_but_is_no_label() -> None:
    """Twelve plus five: the model chooses the first three tokens and the last."""
    target = (12, 20, 5, 17, EOS)
    batch = make_batch([(3, 4)], [target], None, 0, [(False, False, False, True)])
    assert batch.inputs.tolist() == [[4, 12, 20, 5, 17]]
    assert batch.labels.tolist() == [[12, 20, 5, IGNORED, EOS]]


def test_stages_replace_one_more_step_each_by_two_thoughts() -> None:
    stages = _stages("coconut", (5, 4, 3, 2, 1), 7, thoughts_per_step=2)
    assert [stage.thoughts for stage in stages] == [0, 2, 4, 6, 6, 6]
    assert [stage.replaced for stage in stages] == [0, 1, 2, 3, None, None]
    assert [stage.steps for stage in stages] == [5, 4, 3, 2, 1, 7]
    assert [stage.has_dropout for stage in stages] == [False] * 5 + [True]


def test_layouts_of_text_of_a_middle_stage_and_of_the_control() -> None:
    stages = _stages("coconut", (1, 1, 1), 1, thoughts_per_step=2)
    recipe = Curriculum(stages, START, END, review_share=0.0)
    text = recipe.examination(0, EXAMPLES[:1])
    assert text.prompt.tolist() == [[11, 12]]
    assert text.inputs.tolist() == [[13, 20, 21, 22, 23, 24, 30, 31, 5]]
    assert text.labels.tolist() == [[20, 21, 22, 23, 24, 30, 31, 5, EOS]]
    middle = recipe.examination(1, EXAMPLES)
    assert middle.thoughts == 2
    assert middle.prompt.tolist() == [[11, 12, 13, START], [14, 15, 16, START]]
    assert middle.inputs.tolist()[0] == [END, 22, 23, 24, 30, 31, 5]
    assert middle.labels.tolist()[1] == [26, 27, 30, 31, 6, 7, EOS]
    stages = _stages("coconut", (1, 1, 1), 1, with_thoughts=False)
    control = Curriculum(stages, START, END, review_share=0.0).examination(0, EXAMPLES)
    assert control.thoughts == 0
    assert control.inputs.tolist()[0] == [END, 30, 31, 5, 0]
    assert control.labels.tolist()[0] == [30, 31, 5, EOS, IGNORED]


def test_exactness_ignores_padding_and_nothing_else() -> None:
    labels = torch.tensor([[1, 2, IGNORED], [1, 2, 0]])
    logits = torch.nn.functional.one_hot(torch.tensor([[1, 2, 3], [1, 2, 3]]), 4).float()
    assert is_exact(logits, labels).tolist() == [True, False]


def test_reviews_come_from_earlier_stages_at_their_share() -> None:
    model = _decoder("gpt2")
    stages = _stages("coconut", (1, 1, 1), 1, thoughts_per_step=1)
    never = Curriculum(stages, START, END, review_share=0.0)
    always = Curriculum(stages, START, END, review_share=1.0)
    rng = np.random.default_rng(0)
    own = never.loss(model, None, 2, EXAMPLES, rng)["loss"].item()
    earlier = [
        token_loss(think(model, b, identity), b.labels).item()
        for b in (never.examination(0, EXAMPLES), never.examination(1, EXAMPLES))
    ]
    assert own == pytest.approx(
        token_loss(
            think(model, never.examination(2, EXAMPLES), identity),
            never.examination(2, EXAMPLES).labels,
        ).item()
    )
    assert any(
        always.loss(model, None, 2, EXAMPLES, rng)["loss"].item() == pytest.approx(x)
        for x in earlier
    )


def test_the_hidden_distance_is_the_hand_worked_one_and_spares_the_teacher() -> None:
    teacher = torch.tensor([[1.0, 3.0]], requires_grad=True)  # deviation √2
    student = torch.tensor([[1.0, 3.0 + 3 * 2**0.5]], requires_grad=True)
    distance = hidden_distance([student], [teacher])
    assert distance.item() == pytest.approx((0 + 2.5) / 2)  # |3| - ½, over two dimensions
    distance.backward()  # type: ignore[no-untyped-call]
    assert teacher.grad is None
    assert student.grad is not None


def _distillation(thoughts: int, dropout: float = 0.1) -> Distillation:
    stages = _stages("codi", (1, 1), 1, codi_thoughts=thoughts)
    return Distillation(
        stages, START, END, prefix_length=2, gamma=1.0, review_share=0.0, dropout=dropout
    )


def test_codi_drops_what_its_projection_reads_and_only_when_it_settles() -> None:
    model, projection = _decoder("llama"), ProjectionMLP(16, 8)
    recipe = _distillation(thoughts=3)
    assert [stage.name for stage in recipe.stages] == ["teacher", "joint", "settle"]

    def losses(stage: int, seed: int) -> dict[str, float]:
        torch.manual_seed(seed)
        found = recipe.loss(model, projection, stage, EXAMPLES, np.random.default_rng(0))
        return {name: value.item() for name, value in found.items()}

    assert losses(1, seed=0) == losses(1, seed=1)
    assert losses(2, seed=0)["student"] != losses(2, seed=1)["student"]
    assert losses(2, seed=0)["teacher"] == losses(2, seed=1)["teacher"]
    assert losses(2, seed=0)["teacher"] == losses(1, seed=0)["teacher"]


def test_codi_s_shared_question_gives_the_losses_of_separate_passes() -> None:
    model, projection = _decoder("llama"), ProjectionMLP(16, 8)
    recipe = _distillation(thoughts=3)
    losses = recipe.loss(model, projection, 1, EXAMPLES, np.random.default_rng(0))
    student = recipe.examination(1, EXAMPLES)
    teacher = recipe.examination(0, EXAMPLES)
    assert teacher.labels.tolist()[0] == [20, 21, 30, 31, 5, EOS, IGNORED]  # no last step
    assert losses["student"].item() == pytest.approx(
        token_loss(_think_without_cache(model, student, projection), student.labels).item(),
        abs=1e-5,
    )
    assert losses["teacher"].item() == pytest.approx(
        token_loss(think(model, teacher, identity), teacher.labels).item(), abs=1e-5
    )
    assert losses["loss"].item() == pytest.approx(
        sum(losses[name].item() for name in ("student", "teacher", "distance")), abs=1e-5
    )


def test_the_distance_is_taken_at_the_token_before_the_answer() -> None:
    model, projection = _decoder("llama"), ProjectionMLP(16, 8)
    recipe = _distillation(thoughts=2)
    kept = recipe.loss(model, projection, 1, EXAMPLES, np.random.default_rng(0))["distance"]
    other = [Example(e.question, e.steps, (*e.answer[:2], 9, EOS)) for e in EXAMPLES]
    same = recipe.loss(model, projection, 1, other, np.random.default_rng(0))["distance"]
    assert kept.item() == pytest.approx(same.item(), abs=1e-6)  # the answer itself plays no part
    prefix = [Example(e.question, e.steps, (33, *e.answer[1:])) for e in EXAMPLES]
    moved = recipe.loss(model, projection, 1, prefix, np.random.default_rng(0))["distance"]
    assert kept.item() != pytest.approx(moved.item(), abs=1e-6)


def test_batches_are_of_one_prompt_length_and_a_function_of_seed_and_step() -> None:
    examples = [Example((7,) * (1 + n % 3), ((n % 5,) * (n % 5),), (n % 7, EOS)) for n in range(90)]
    corpus = Corpus(examples)
    for step in range(20):
        drawn = corpus.draw(8, step_rng(3, step))
        assert drawn == corpus.draw(8, step_rng(3, step))
        assert len({len(e.question) for e in drawn}) == 1
        assert len(drawn) == 8
    whole = [e for batch in corpus.in_order(16) for e in batch]
    assert sorted(map(repr, whole)) == sorted(map(repr, examples))


def test_every_example_is_drawn_equally_often() -> None:
    examples = [Example((7,) * (1 + n % 2), ((1,) * n,), (EOS,)) for n in range(24)]
    corpus = Corpus(examples)
    counts = np.zeros(24)
    for step in range(6000):
        for example in corpus.draw(4, step_rng(0, step)):
            counts[len(example.steps[0])] += 1
    assert counts.min() > 850
    assert counts.max() < 1150
