"""Settings for every test."""

from collections.abc import Iterator

import pytest
import torch

# The tensors here are tiny: a second thread only waits, and bits are promised on one.
torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def _without_the_users_calibrations(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Whoever runs the tests may have calibrated embedded models; those would change the answers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        yield
