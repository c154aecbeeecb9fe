"""Settings for every test."""

import torch

# The tensors here are tiny: a second thread only waits, and bits are promised on one.
torch.set_num_threads(1)
