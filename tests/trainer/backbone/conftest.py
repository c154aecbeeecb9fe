"""Folder of decoders that small runs start from."""

import pytest
import torch

from trainer.backbone.config import Architecture
from trainer.backbone.model import build_decoder
from trainer.data.sources import embedded_rows
from trainer.data.tokenizer import train_tokenizer


@pytest.fixture(scope="session")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with a decoder of each family, gpt2 and llama, and their tokenizer."""
    folder = tmp_path_factory.mktemp("decoder")
    rows = embedded_rows("train", 200)
    tokenizer = train_tokenizer((f"{r.question}\n### {r.answer}<<{r.steps}>>" for r in rows), 320)
    torch.manual_seed(0)
    for family in ("gpt2", "llama"):
        shape = Architecture(family, width=16, layers=2, heads=2, kv_heads=1, mlp_width=24)
        build_decoder(shape, len(tokenizer), 0).save_pretrained(folder / family)
        tokenizer.save_pretrained(folder / family)
    return str(folder)
