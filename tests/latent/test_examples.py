"""Example questions in a reasoner's folder: read, refused if malformed, dropped for other weights."""

from pathlib import Path

import pytest

from latent.errors import FormatError
from latent.examples import FILE_NAME, Example, read_examples, write_examples
from latent.files import write_json
from latent.folders import fingerprint, read_format
from latent.zoo import embedded_models

EXAMPLES = (Example("How many?", "3"), Example("How much?", "-2.5"))


def test_examples_are_read_as_written_and_only_for_their_weights(tmp_path: Path) -> None:
    assert read_examples(tmp_path, "f1") == ()
    write_examples(tmp_path, "f1", EXAMPLES)
    assert read_examples(tmp_path, "f1") == EXAMPLES
    assert read_examples(tmp_path, "f2") == ()


@pytest.mark.parametrize(
    "data",
    [
        [],
        {"format": 1, "examples": []},
        {"format": 2, "reasoner_fingerprint": "f", "examples": []},
        {"format": 1, "reasoner_fingerprint": "f", "examples": {}},
        {"format": 1, "reasoner_fingerprint": "f", "examples": [{"question": "q"}]},
        {"format": 1, "reasoner_fingerprint": "f", "examples": [{"question": "q", "answer": 3}]},
        {"format": 1, "reasoner_fingerprint": "f", "examples": [{"question": " ", "answer": "3"}]},
    ],
)
def test_a_malformed_file_is_refused_by_name(tmp_path: Path, data: object) -> None:
    write_json(tmp_path / FILE_NAME, data)
    with pytest.raises(FormatError, match=FILE_NAME):
        read_examples(tmp_path, "f")


# Those that need no base from another package.
WHOLE = [name for name, folder in embedded_models().items() if read_format(folder).base is None]


@pytest.mark.parametrize("name", WHOLE)
def test_every_whole_embedded_model_has_examples_of_its_own_weights(name: str) -> None:
    """After a new training: python -m trainer.evaluation.examples --model NAME."""
    folder = embedded_models()[name]
    assert len(read_examples(folder, fingerprint(folder))) >= 2
