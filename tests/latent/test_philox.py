"""The generator gives the published integers, compiled, in NumPy and in tensors."""

import shutil

import numpy as np
import pytest
import torch

from latent import philox as module
from latent.philox import draw_words, is_compiled, philox

# Known answers of Philox4x32-10, as published with the generator.
KNOWN = (
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
)


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_philox_gives_the_published_known_answers(
    counter: tuple[int, ...], key: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    words = philox(*(tuple(np.array([w], np.int64) for w in part) for part in (counter, key)))
    assert tuple(int(word[0]) for word in words) == expected


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_drawn_words_are_the_published_known_answers(
    counter: tuple[int, ...], key: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    block, index, step, place = counter
    lanes = torch.tensor([[*key, index]])
    words = draw_words(lanes, torch.tensor([block]), step, torch.tensor([place]))
    assert np.asarray(words).tolist() == [[list(expected)]]


def test_tensors_and_arrays_give_the_same_integers() -> None:
    counter = torch.randint(0, 2**32, (4, 3, 50))
    key = torch.randint(0, 2**32, (2, 3, 1))
    tensors = philox(tuple(counter), tuple(key))  # type: ignore[type-var]
    arrays = philox(tuple(counter.numpy()), tuple(key.numpy()))  # type: ignore[type-var]
    for one, other in zip(tensors, arrays, strict=True):
        assert one.tolist() == other.tolist()


# Around the number of counters that the compiled code takes at a time, and more than NumPy does.
@pytest.mark.parametrize("counters", [0, 1, 127, 128, 129, 300, 40_000])
def test_numpy_draws_what_the_compiled_generator_draws(
    counters: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lanes = torch.randint(0, 2**32, (3, 3))
    block, place = torch.randint(0, 2**32, (2, counters))
    found = draw_words(lanes, block, 2**32 - 1, place)
    monkeypatch.setattr(module, "_compiled", lambda: None)
    expected = draw_words(lanes, block, 2**32 - 1, place)
    assert np.asarray(found).shape == (3, counters, 4)
    assert np.array_equal(found, expected)


def test_the_generator_was_compiled_where_there_is_a_compiler() -> None:
    assert is_compiled() or shutil.which("cc") is None
