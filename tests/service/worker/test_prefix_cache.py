import pytest

from latent.lanes import Prefix
from latent.reasoner import Reasoner
from service.worker.prefix_cache import PrefixCache
from tests.reasoners import make_reasoner


@pytest.fixture(scope="module")
def reasoner() -> Reasoner:
    return make_reasoner("coconut")


@pytest.fixture(scope="module")
def prefix(reasoner: Reasoner) -> Prefix:
    return reasoner.prefill([(1, 2, 3)])[0]


def test_the_least_recently_used_goes_first(reasoner: Reasoner, prefix: Prefix) -> None:
    cache = PrefixCache(2 * prefix.nbytes)
    for prompt in ((1,), (2,)):
        cache.put(reasoner, prompt, prefix)
    assert cache.get(reasoner, (1,)) is prefix
    cache.put(reasoner, (3,), prefix)
    held = [cache.get(reasoner, prompt) is not None for prompt in ((1,), (2,), (3,))]
    assert held == [True, False, True]
    assert (cache.hits, cache.misses) == (3, 1)


def test_what_is_larger_than_the_cache_moves_nothing_out(
    reasoner: Reasoner, prefix: Prefix
) -> None:
    small = Prefix(prefix.kv[..., :1, :], 1, prefix.hidden)
    cache = PrefixCache(small.nbytes)
    cache.put(reasoner, (1,), small)
    cache.put(reasoner, (2,), prefix)
    assert cache.get(reasoner, (1,)) is small
    assert cache.get(reasoner, (2,)) is None


def test_a_cleared_cache_has_all_its_room_again(reasoner: Reasoner, prefix: Prefix) -> None:
    cache = PrefixCache(prefix.nbytes)
    cache.put(reasoner, (1,), prefix)
    cache.clear()
    assert cache.get(reasoner, (1,)) is None
    cache.put(reasoner, (2,), prefix)
    assert cache.get(reasoner, (2,)) is prefix
