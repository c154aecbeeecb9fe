"""Tokenizer of the embedded task: byte-level BPE, which encodes any text, with single digits."""

from collections.abc import Iterable

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from latent.errors import InputError
from trainer.data.problems import generate

END_OF_TEXT = "<|endoftext|>"
START_LATENT = "<|start-latent|>"
END_LATENT = "<|end-latent|>"


def train_tokenizer(texts: Iterable[str], vocabulary: int) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE whose merges never include a digit."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=vocabulary,
            special_tokens=[END_OF_TEXT, START_LATENT, END_LATENT],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer,
        eos_token=END_OF_TEXT,
        pad_token=END_OF_TEXT,
        additional_special_tokens=[START_LATENT, END_LATENT],
        clean_up_tokenization_spaces=False,
    )


def find_markers(tokenizer: PreTrainedTokenizerFast, names: str | None = None) -> tuple[int, int]:
    """Ids of the tokens that begin and end the thoughts: those named START,END, or our own."""
    start, end = names.split(",") if names else (START_LATENT, END_LATENT)
    vocabulary: dict[str, int] = tokenizer.get_vocab()
    for name in (start, end):
        if name not in vocabulary:
            raise InputError(f"markers: {name!r} is no token of the vocabulary", param="markers")
    return vocabulary[start], vocabulary[end]


def embedded_tokenizer(vocabulary: int = 1600, problems: int = 20_000) -> PreTrainedTokenizerFast:
    """Train the tokenizer of the embedded task on its own training split."""
    drawn = (generate("train", index) for index in range(problems))
    return train_tokenizer(
        (
            f"{problem.question}\n"
            + "".join(f"<<{step}>>\n" for step in problem.steps)
            + f"### {problem.answer}\nThe answer is: {problem.answer}"
            for problem in drawn
        ),
        vocabulary,
    )
