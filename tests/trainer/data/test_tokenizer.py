"""The tokenizer of the embedded task: digits stand alone, any text comes back."""

from pathlib import Path

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from trainer.data.tokenizer import embedded_tokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> PreTrainedTokenizerFast:
    folder: Path = tmp_path_factory.mktemp("tokenizer")
    embedded_tokenizer(vocabulary=500, problems=300).save_pretrained(folder)
    loaded: PreTrainedTokenizerFast = AutoTokenizer.from_pretrained(folder)
    return loaded


@pytest.mark.parametrize(
    "text",
    [
        "Ana has 1234 apples.\n",
        "### 42",
        "<<12+30=42>>\n",
        "naïve café, 漢字, 🦉",
        "  two  spaces\tand\r\ntabs ",
        "it's can't 3.5% $1,000 -7",
        "",
    ],
)
def test_any_text_comes_back(tokenizer: PreTrainedTokenizerFast, text: str) -> None:
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.decode(ids) == text


def test_no_token_holds_two_digits_or_a_digit_and_something_else(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    for token in tokenizer.get_vocab():
        assert len(token) == 1 or not any("0" <= sign <= "9" for sign in token)


def test_an_answer_is_its_prefix_a_space_and_its_digits(tokenizer: PreTrainedTokenizerFast) -> None:
    assert tokenizer.tokenize("### 42") == ["###", "Ġ", "4", "2"]
    assert tokenizer.tokenize("The answer is: 407")[-4:] == ["Ġ", "4", "0", "7"]


def test_the_markers_are_single_tokens_and_encoding_adds_nothing(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    for marker in ("<|endoftext|>", "<|start-latent|>", "<|end-latent|>"):
        assert len(tokenizer.encode(marker)) == 1
    assert tokenizer.encode("a 7") == tokenizer.encode("a 7", add_special_tokens=False)
    assert tokenizer.eos_token == "<|endoftext|>"
