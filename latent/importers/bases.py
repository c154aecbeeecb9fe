"""The base folder: the config and the tokenizer that a checkpoint was trained from. No weights."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import AutoConfig, PreTrainedConfig

from latent.errors import FormatError, InputError, MismatchError, NotFoundError
from latent.store import load_tokenizer

__all__ = ["Base", "read_base"]


@dataclass(frozen=True)
class Base:
    """A decoder's config and its tokenizer, to which an importer may add tokens."""

    folder: Path
    config: PreTrainedConfig
    tokenizer: Any

    def add_tokens(self, names: Sequence[str]) -> tuple[int, ...]:
        """Add special tokens that are not there yet, in this order; give the ids of all."""
        known = self.tokenizer.get_vocab()
        new = [name for name in names if name not in known]
        self.tokenizer.add_tokens(new, special_tokens=True)
        return tuple(self.tokenizer.convert_tokens_to_ids(list(names)))

    def bos_ids(self) -> tuple[int, ...]:
        """Give what comes before a prompt: BOS for LLaMA, nothing for GPT-2."""
        if self.config.model_type != "llama":
            return ()
        bos = self.tokenizer.bos_token_id
        bos = self.config.bos_token_id if bos is None else bos
        if bos is None:
            raise FormatError(f"{self.folder}: neither the tokenizer nor config.json names a BOS")
        return (bos,)

    def eos_ids(self, eos: int | None = None) -> tuple[int, ...]:
        """Give the end-of-text ids, the one that targets end with first."""
        if eos is not None:
            return (eos,)
        own = self.tokenizer.eos_token_id
        named = self.config.eos_token_id
        named = own if named is None else named
        if named is None:
            raise InputError(
                f"{self.folder}: neither config.json nor the tokenizer names an end-of-text token; "
                "set eos_token_id in config.json",
                param="base",
            )
        ids = tuple(named) if isinstance(named, list) else (named,)
        return tuple(sorted(ids, key=lambda token: token != own))

    def check_rows(self, rows: int, ids: Sequence[int], source: Path) -> None:
        """Refuse an embedding with fewer rows than the tokenizer, or these ids, need."""
        vocabulary = self.tokenizer.get_vocab()
        highest = max(*vocabulary.values(), *ids)
        if highest >= rows:
            name = next((repr(text) for text, n in vocabulary.items() if n == highest), "a token")
            raise MismatchError(
                f"{source}: its embedding has {rows} rows (ids 0 to {rows - 1}), but {name} has id "
                f"{highest}; is this the base it was trained from?",
                param="base",
            )


def read_base(folder: Path) -> Base:
    """Read a transformers folder's config and tokenizer, from the disk alone."""
    if not folder.is_dir():
        raise NotFoundError(f"no base folder at {folder}", param="base")
    if not (folder / "config.json").is_file():
        raise NotFoundError(f"{folder / 'config.json'} does not exist", param="base")
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # transformers raises whatever its parts raise
        first_line = str(error).strip().partition("\n")[0]
        raise FormatError(
            f"{folder} does not load as a transformers folder: {first_line}", param="base"
        ) from error
    return Base(folder, config, load_tokenizer(folder))
