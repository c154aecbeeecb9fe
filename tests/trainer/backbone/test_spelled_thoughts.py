"""Spelled thoughts: the chain of an example, its losses, and a reasoner trained by them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from latent.batch import Ask
from latent.calculator import Calculator
from latent.errors import GtsError, InputError
from latent.reasoner import ProjectionMLP
from latent.rollout import rollout
from latent.store import load_reasoner
from trainer.backbone.config import Architecture, BackboneConfig
from trainer.backbone.curriculum import Stage
from trainer.backbone.model import build_decoder
from trainer.backbone.publish import ship
from trainer.backbone.run import BackboneRun
from trainer.backbone.spelled_thoughts import (
    SpelledThoughts,
    Spelling,
    own_thoughts,
    spell_chain,
)
from trainer.backbone.thinking import read_out, think_forced, think_through, token_loss
from trainer.data.corpus import IGNORED, Example
from trainer.data.sources import embedded_rows
from trainer.data.tokenizer import train_tokenizer

START, END, EOS = 1, 2, 0
STAGES = (Stage("forced", 1, 8, None, is_forced=True), Stage("joint", 1, 8, None))
EXAMPLES = [
    Example((11, 12, 13), (), (30, 31, EOS), ("2+3=5",)),
    Example((14, 15, 16), (), (30, 31, 7, EOS), ("9-2=7",)),
]


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    rows = embedded_rows("train", 200)
    return train_tokenizer((f"{r.question}\n### {r.answer}<<{r.steps}>>" for r in rows), 320)


@pytest.fixture(scope="module")
def decoder(tokenizer: PreTrainedTokenizerFast, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("decoder")
    _model(len(tokenizer)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def _model(tokens: int) -> PreTrainedModel:
    torch.manual_seed(0)
    shape = Architecture("llama", width=16, layers=2, heads=2, kv_heads=1, mlp_width=24)
    return build_decoder(shape, tokens, EOS)


def test_equations_are_spelled_as_the_text_reasoner_writes_them() -> None:
    assert spell_chain(("12+5=17", "17-3=14")) == "12+5=17\n17-3=14"


def test_a_chain_is_padded_to_the_thoughts_and_those_after_its_end_are_free(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    spelling = Spelling(tokenizer, 9)
    tokens, labels = spelling.tokens(EXAMPLES), spelling.labels(EXAMPLES)
    assert [tokenizer.decode(row) for row in tokens.tolist()] == ["2+3=5\n\n\n\n", "9-2=7\n\n\n\n"]
    assert torch.equal(labels[:, :7], tokens[:, :7])
    assert (labels[:, 7:] == IGNORED).all()


@pytest.mark.parametrize(
    ("equation", "fits"),
    [("12+5=17", True), ("123+5=128", False), ("20%*5=1", False), ("", False), (".5*8=4", True)],
)
def test_a_chain_that_is_too_long_or_has_other_signs_does_not_fit(
    equation: str, fits: bool, tokenizer: PreTrainedTokenizerFast
) -> None:
    spelling = Spelling(tokenizer, 8)
    assert spelling.fits(replace(EXAMPLES[0], equations=(equation,) if equation else ())) == fits


def test_a_tokenizer_without_a_token_for_each_digit_is_refused() -> None:
    class Pairs:
        def encode(self, text: str, add_special_tokens: bool) -> list[int]:
            return [1, 2] if text == "7" else [1]

    with pytest.raises(InputError, match="no single token for '7'"):
        Spelling(Pairs(), 8)  # type: ignore[arg-type]


def test_the_forced_loss_is_that_of_the_whole_as_text_and_of_the_projection(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    model, spelling = _model(len(tokenizer)), Spelling(tokenizer, 8)
    projection = ProjectionMLP(16, 8)
    recipe = SpelledThoughts(STAGES, START, END, 0.0, spelling=spelling)
    losses = recipe.loss(model, projection, 0, EXAMPLES[1:], np.random.default_rng(0))
    chain = spelling.tokens(EXAMPLES[1:])[0].tolist()
    whole = torch.tensor([[14, 15, 16, START, *chain, END, 30, 31, 7, EOS]])
    output = model(whole, output_hidden_states=True)
    logp = output.logits[0].log_softmax(-1)
    steps = torch.stack([-logp[3 + k, token] for k, token in enumerate(chain[:7])]).mean()
    answer = torch.stack([-logp[12 + k, token] for k, token in enumerate((30, 31, 7, EOS))]).mean()
    targets = model.get_input_embeddings()(torch.tensor(chain))
    projected = projection(output.hidden_states[-1][0, 3:11])
    distance = F.mse_loss(projected, targets) / targets.var()
    torch.testing.assert_close(losses["steps"], steps)
    torch.testing.assert_close(losses["answer"], answer)
    torch.testing.assert_close(losses["distance"], distance)
    torch.testing.assert_close(losses["loss"], steps + answer + distance)


def test_own_thoughts_are_fed_back_where_they_read_as_the_chain_and_are_taught_it(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    model, spelling = _model(len(tokenizer)), Spelling(tokenizer, 8)
    embed = model.get_input_embeddings()
    tokens = spelling.tokens(EXAMPLES)
    targets = embed(tokens)
    recipe = SpelledThoughts(STAGES, START, END, 0.0, spelling=spelling)
    batch = recipe.examination(1, EXAMPLES)
    # Thoughts that read right in some places only: near the true embeddings of the first example.
    projection = _Given(targets[:1] + 0.01 * torch.randn(2, 8, 16))
    losses = recipe.loss(model, projection, 1, EXAMPLES, np.random.default_rng(0))
    is_right = torch.stack((torch.ones(8, dtype=torch.bool), tokens[0] == tokens[1]))
    assert 0 < is_right[1].sum() < 8
    fed = torch.where(is_right[..., None], projection.thoughts, targets)
    thinking = think_forced(model, batch, fed)
    steps = token_loss(read_out(model, thinking.thoughts), spelling.labels(EXAMPLES))
    distance = F.mse_loss(projection.thoughts, targets) / targets.var()
    torch.testing.assert_close(losses["steps"], steps.detach())
    torch.testing.assert_close(losses["answer"], token_loss(thinking.logits, batch.labels).detach())
    torch.testing.assert_close(losses["distance"], distance.detach())
    always = replace(recipe, review_share=1.0)
    forced = always.loss(model, projection, 1, EXAMPLES, np.random.default_rng(0))
    assert forced["steps"] != losses["steps"]


class _Given(torch.nn.Module):
    """A projection that makes the same thoughts (B, K, D) of any states."""

    def __init__(self, thoughts: torch.Tensor) -> None:
        super().__init__()
        self.thoughts = thoughts.detach()

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return self.thoughts + 0 * states


def test_own_thoughts_are_those_that_are_served_if_all_before_them_are_the_true_ones(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    model, spelling = _model(len(tokenizer)), Spelling(tokenizer, 8)
    projection = ProjectionMLP(16, 8)
    batch = SpelledThoughts(STAGES, START, END, 0.0, spelling=spelling).examination(1, EXAMPLES)
    thinking = think_through(model, batch, projection)
    served = projection(thinking.thoughts)
    torch.testing.assert_close(own_thoughts(model, batch, served, projection), served)


def test_results_are_fed_and_are_no_labels_with_a_calculator(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    calculator = Calculator(tokenizer, len(tokenizer), torch.device("cpu"))
    spelling = Spelling(tokenizer, 10, calculator)
    example = replace(EXAMPLES[0], equations=("8+5=13",))
    tokens = spelling.tokens([example])
    assert spelling.computed(tokens)[0].nonzero().flatten().tolist() == [4, 5]
    assert (spelling.labels([example])[0] == IGNORED).nonzero().flatten().tolist() == [4, 5, 8, 9]
    model, projection = _model(len(tokenizer)), ProjectionMLP(16, 8)
    stages = (Stage("forced", 1, 10, None, is_forced=True), Stage("joint", 1, 10, None))
    recipe = SpelledThoughts(stages, START, END, 0.0, spelling=spelling)
    losses = recipe.loss(model, projection, 0, [example], np.random.default_rng(0))
    targets = model.get_input_embeddings()(tokens)
    thinking = think_forced(model, recipe.examination(0, [example]), targets)
    kept = [0, 1, 2, 3, 6, 7, 8, 9]
    made = projection(thinking.thoughts)
    distance = F.mse_loss(made[:, kept], targets[:, kept]) / targets.var()
    torch.testing.assert_close(losses["distance"], distance.detach())


@pytest.mark.parametrize("is_reduced", [False, True])
def test_every_weight_learns_from_fed_back_thoughts(
    is_reduced: bool, tokenizer: PreTrainedTokenizerFast
) -> None:
    model, projection = _model(len(tokenizer)), ProjectionMLP(16, 8)
    recipe = SpelledThoughts(STAGES, START, END, 0.0, spelling=Spelling(tokenizer, 8))
    with torch.autocast("cpu", torch.bfloat16, enabled=is_reduced):
        losses = recipe.loss(model, projection, 1, EXAMPLES, np.random.default_rng(0))
    losses["loss"].backward()  # type: ignore[no-untyped-call]
    for name, weight in (*model.named_parameters(), *projection.named_parameters()):
        assert weight.grad is not None, name
        assert weight.grad.any(), name


def test_a_new_projection_begins_with_the_mean_and_size_of_the_embeddings(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    model, projection = _model(len(tokenizer)), ProjectionMLP(16, 8)
    Spelling(tokenizer, 8).start_projection(projection, model.get_input_embeddings())
    torch.manual_seed(0)
    put_out = projection(torch.randn(2000, 16))
    ids = [tokenizer.encode(char)[0] for char in "0123456789.=+-*/\n"]
    rows = model.get_input_embeddings()(torch.tensor(ids))
    torch.testing.assert_close(
        put_out.norm(dim=1).mean(), rows.norm(dim=1).mean(), rtol=0.2, atol=0
    )


def _config(decoder: str, **changes: Any) -> BackboneConfig:
    base = BackboneConfig(
        recipe="codi",
        stage_steps=(0, 3, 0),
        settle_steps=0,
        init=decoder,
        lora_rank=2,
        spelled_thoughts=True,
        markers="<|start-latent|>,<|end-latent|>",
        codi_thoughts=14,
        projection_hidden=8,
        data=("everyday=2", "drills=1"),
        redraw_numbers=True,
        validation="everyday",
        validation_problems=6,
        test=None,
        batch=4,
        optimizer="adamw",
        log_every=1,
        examine_every=10,
    )
    return replace(base, **changes)


@pytest.mark.parametrize("calculator", [False, True])
def test_a_run_goes_on_from_the_projection_and_serves_what_it_trained(
    calculator: bool, decoder: str, tmp_path: Path
) -> None:
    BackboneRun(_config(decoder, calculator=calculator), tmp_path / "forced").run()
    config = _config(
        str(tmp_path / "forced" / "reasoner"), stage_steps=(0, 0, 2), calculator=calculator
    )
    run = BackboneRun(config, tmp_path / "fed")
    forced = load_reasoner(tmp_path / "forced" / "reasoner")
    first = torch.randn(3, 16)
    with torch.no_grad():
        assert torch.equal(run.feedback(first), forced.feedback(first))
    run.run()
    result = json.loads((tmp_path / "fed" / "result.json").read_text())
    assert {"validation", "validation_zeroed", "validation_swapped"} <= set(result)
    served = load_reasoner(tmp_path / "fed" / "reasoner")
    assert (served.format.kind, served.format.thoughts) == ("codi", 14)
    assert served.format.base is not None
    example = run.problems.validation.examples[0]
    question = run.tokenizer.decode(list(example.question)).strip()
    batch = run.recipe.examination(0, [example])
    prompt = served.encode(question)
    assert prompt == tuple(batch.prompt[0].tolist())
    ask = Ask(prompt, indices=(0,), seed=0)
    rolled = rollout(served, served.sampler("deterministic"), [ask], keep_thoughts=True)[0]
    assert served.format.calculator == calculator
    thoughts: list[torch.Tensor] = []
    feed_back = run._make_feedback(1)

    def keep(state: torch.Tensor) -> torch.Tensor:
        thoughts.append(feed_back(state))
        return thoughts[-1]

    with torch.no_grad():
        think_through(run.model.eval(), batch, keep)
    assert rolled.contexts is not None
    torch.testing.assert_close(rolled.contexts[0], torch.cat(thoughts, dim=1)[0], rtol=0, atol=1e-4)
    ship(tmp_path / "fed", tmp_path / "small", sampler="dropout:0.05")
    small = load_reasoner(tmp_path / "small")
    assert small.format.default_sampler == "dropout:0.05"
    assert len(small.format.provenance["runs"]) == 2
    assert small.format.base == served.format.base
    with torch.no_grad():
        torch.testing.assert_close(small.feedback(first), served.feedback(first), rtol=0, atol=0.01)


def test_a_run_leaves_out_problems_whose_chain_does_not_fit(decoder: str, tmp_path: Path) -> None:
    run = BackboneRun(_config(decoder, codi_thoughts=8), tmp_path)
    assert all(len(spell_chain(e.equations)) < 8 for e in run.problems.train.examples)
    assert run.problems.too_long > 0
    run.run()
    drawn = [json.loads(line) for line in (tmp_path / "drawn.jsonl").read_text().splitlines()]
    assert len(drawn) > 10
    assert all(len(spell_chain(tuple(row["steps"]))) < 8 for row in drawn)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"recipe": "coconut"}, "spelled_thoughts"),
        ({"spelled_thoughts": False, "calculator": True, "stage_steps": (0, 3)}, "calculator"),
        ({"init": None, "lora_rank": 0, "markers": None, "stage_steps": (1, 1, 1)}, "spelled"),
        ({"supervised_steps": 2, "redraw_numbers": False}, "spelled_thoughts"),
        ({"stage_steps": (0, 3)}, "stage_steps"),
        ({"stage_steps": (0, 0, 0)}, "stage_steps"),
        ({"markers": "<|start-latent|>"}, "markers"),
        ({"markers": "<|start-latent|>,<nowhere>"}, "'<nowhere>' is no token"),
    ],
)
def test_settings_that_do_not_go_together_are_named(
    decoder: str, changes: dict[str, Any], named: str
) -> None:
    with pytest.raises(GtsError, match=named):
        BackboneRun(_config(decoder, **changes), Path("unused"))
