"""A cache of prefilled questions, for their later rounds and for repeated requests."""

from collections import OrderedDict

from latent.lanes import Prefix
from latent.reasoner import Reasoner

__all__ = ["PrefixCache"]

Key = tuple[str, str, tuple[int, ...]]


class PrefixCache:
    """Least recently used, bounded in bytes. A prefix that a round uses outlives its eviction."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._used = 0
        self._held: OrderedDict[Key, Prefix] = OrderedDict()
        self.hits = 0
        self.misses = 0

    def get(self, reasoner: Reasoner, prompt: tuple[int, ...]) -> Prefix | None:
        """Look a prompt's prefix up; None if it is not held."""
        key = self._key(reasoner, prompt)
        prefix = self._held.get(key)
        if prefix is None:
            self.misses += 1
            return None
        self.hits += 1
        self._held.move_to_end(key)
        return prefix

    def put(self, reasoner: Reasoner, prompt: tuple[int, ...], prefix: Prefix) -> None:
        """Hold a prefix; evict the least recently used ones until it fits."""
        key = self._key(reasoner, prompt)
        if key in self._held or prefix.nbytes > self._limit:
            return
        self._held[key] = prefix
        self._used += prefix.nbytes
        while self._used > self._limit:
            _, oldest = self._held.popitem(last=False)
            self._used -= oldest.nbytes

    def clear(self) -> None:
        """Evict all."""
        self._held.clear()
        self._used = 0

    @staticmethod
    def _key(reasoner: Reasoner, prompt: tuple[int, ...]) -> Key:
        return reasoner.fingerprint, reasoner.precision, prompt
