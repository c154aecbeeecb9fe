"""Prefilled questions, kept for their later rounds and for the next request that asks them."""

from collections import OrderedDict

from latent.lanes import Prefix
from latent.reasoner import Reasoner

__all__ = ["PrefixCache"]

Key = tuple[str, str, tuple[int, ...]]


class PrefixCache:
    """Least recently used first out, bounded in bytes. What a round holds stays alive by itself."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._used = 0
        self._held: OrderedDict[Key, Prefix] = OrderedDict()
        self.hits = 0
        self.misses = 0

    def get(self, reasoner: Reasoner, prompt: tuple[int, ...]) -> Prefix | None:
        """Give a prompt's prefix, if it is held."""
        key = self._key(reasoner, prompt)
        prefix = self._held.get(key)
        if prefix is None:
            self.misses += 1
            return None
        self.hits += 1
        self._held.move_to_end(key)
        return prefix

    def put(self, reasoner: Reasoner, prompt: tuple[int, ...], prefix: Prefix) -> None:
        """Hold a prefix, letting the oldest go to make room."""
        key = self._key(reasoner, prompt)
        if key in self._held or prefix.nbytes > self._limit:
            return
        self._held[key] = prefix
        self._used += prefix.nbytes
        while self._used > self._limit:
            _, oldest = self._held.popitem(last=False)
            self._used -= oldest.nbytes

    def clear(self) -> None:
        """Let all of them go."""
        self._held.clear()
        self._used = 0

    @staticmethod
    def _key(reasoner: Reasoner, prompt: tuple[int, ...]) -> Key:
        return reasoner.fingerprint, str(reasoner.dtype), prompt
