import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedConfig
from transformers.models.bloom import BloomConfig
from transformers.models.deepseek_v3 import DeepseekV3Config
from transformers.models.gemma2 import Gemma2Config
from transformers.models.gpt_oss import GptOssConfig
from transformers.models.granite import GraniteConfig
from transformers.models.mamba import MambaConfig
from transformers.models.mistral import MistralConfig
from transformers.models.qwen2 import Qwen2Config
from transformers.models.qwen3 import Qwen3Config

from latent.attention import ATTENTION_NAME, lane_attention
from latent.errors import UnsupportedError
from latent.supported import check_decoder
from tests.invariants.test_oracle import compare
from tests.reasoners import make_reasoner, tokenizer

TINY = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "pad_token_id": 0,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
REFUSED = {
    "sliding window": MistralConfig(**TINY, sliding_window=16),
    "layers of type sliding_attention": Qwen2Config(
        **TINY, use_sliding_window=True, sliding_window=16, max_window_layers=1
    ),
    "ALiBi": BloomConfig(vocab_size=64, hidden_size=32, n_layer=2, n_head=4),
    "soft caps": Gemma2Config(**TINY),
    "sinks": GptOssConfig(**TINY, num_local_experts=2, num_experts_per_tok=1),
    "latent attention": DeepseekV3Config(
        **{**TINY, "num_key_value_heads": 4},
        n_routed_experts=4,
        num_experts_per_tok=1,
        n_group=1,
        topk_group=1,
    ),
    "recurrent layers": MambaConfig(vocab_size=64, hidden_size=32, num_hidden_layers=2),
    "scaled logits": GraniteConfig(**TINY, logits_scaling=8.0),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_decoder_that_lanes_cannot_serve_is_refused_by_name(name: str) -> None:
    config = REFUSED[name]
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    with pytest.raises(UnsupportedError, match=name) as caught:
        check_decoder(model)
    assert config.model_type in str(caught.value)


@pytest.mark.parametrize("cls", [MistralConfig, Qwen3Config])
def test_other_plain_decoders_are_served_and_match_the_oracle(cls: type[PreTrainedConfig]) -> None:
    settings = {
        **TINY,
        "vocab_size": len(tokenizer()),
        "initializer_range": 0.3,
        "num_hidden_layers": 3,
    }
    config = cls(**settings, max_position_embeddings=160, sliding_window=None)
    compare(make_reasoner("coconut", config=config), "dropout:0.2", tolerance=1e-8)


@pytest.mark.parametrize(
    "extra", [{"softcap": 30.0}, {"sliding_window": 8}, {"s_aux": torch.ones(1)}]
)
def test_attention_settings_that_are_not_understood_are_refused(extra: dict[str, object]) -> None:
    q = torch.zeros(1, 2, 3, 4)
    with pytest.raises(UnsupportedError, match=next(iter(extra))):
        lane_attention(torch.nn.Identity(), q, q, q, None, scaling=1.0, **extra)


def test_a_mask_is_refused_since_lanes_keep_their_own() -> None:
    q = torch.zeros(1, 2, 3, 4)
    with pytest.raises(UnsupportedError, match="attention mask"):
        lane_attention(torch.nn.Identity(), q, q, q, torch.zeros(1, 1, 3, 3), scaling=1.0)


def test_the_name_of_the_attention_is_registered() -> None:
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    assert ALL_ATTENTION_FUNCTIONS[ATTENTION_NAME] is lane_attention
