"""The base folder: the config and the tokenizer that a checkpoint was trained from. No weights."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import AutoConfig, PreTrainedConfig

from latent.errors import FormatError, InputError, MismatchError, NotFoundError
from latent.store import load_tokenizer

__all__ = ["Base", "check_eos", "read_base"]


@dataclass(frozen=True)
class Base:
    """A decoder's config and its tokenizer, to which an importer may add tokens."""

    folder: Path
    config: PreTrainedConfig
    tokenizer: Any

    def add_tokens(self, names: Sequence[str]) -> tuple[int, ...]:
        """Add special tokens that are not there yet, in this order; return the ids of all."""
        known = self.tokenizer.get_vocab()
        new = [name for name in names if name not in known]
        self.tokenizer.add_tokens(new, special_tokens=True)
        return tuple(self.tokenizer.convert_tokens_to_ids(list(names)))

    def added_around(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Find the ids that the tokenizer itself puts before and after a text, such as BOS."""
        text = "7"
        bare = self.tokenizer.encode(text, add_special_tokens=False)
        whole = self.tokenizer.encode(text, add_special_tokens=True)
        for first in range(len(whole) - len(bare) + 1):
            if whole[first : first + len(bare)] == bare:
                return tuple(whole[:first]), tuple(whole[first + len(bare) :])
        raise FormatError(
            f"{self.folder}: its tokenizer reads a text differently with special tokens",
            param="base",
        )

    def eos_id(self, eos: int | None = None) -> int:
        """Choose the end-of-text id: the one given, or the tokenizer's, or the config's only one."""
        named = self.config.eos_token_id
        ids = [eos, self.tokenizer.eos_token_id, named if isinstance(named, int) else None]
        chosen = next((token for token in ids if token is not None), None)
        if chosen is None:
            raise InputError(
                f"{self.folder}: its tokenizer has no end-of-text token; give --eos ID", param="eos"
            )
        return int(chosen)

    def generation_eos_ids(self) -> tuple[int, ...]:
        """List the ids at which transformers' `generate` stops, the tokenizer's own first."""
        named = self.config.eos_token_id
        ids = [self.tokenizer.eos_token_id, *(named if isinstance(named, list) else [named])]
        known = tuple(dict.fromkeys(token for token in ids if token is not None))
        if not known:
            raise InputError(
                f"{self.folder}: neither config.json nor the tokenizer names an end-of-text token; "
                "set eos_token_id in config.json",
                param="base",
            )
        return known

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


def check_eos(eos: int | None, rows: int, source: Path) -> None:
    """Refuse an --eos that is not a token of the checkpoint."""
    if eos is not None and not 0 <= eos < rows:
        raise InputError(f"{source}: --eos {eos} is not one of its {rows} tokens", param="eos")


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
