"""Random verifiers for tests; their scores differ much, so that they change votes."""

from pathlib import Path

import torch

from latent.reasoner import Reasoner
from latent.store import load_reasoner
from latent.verifier import Verifier, save_verifier, verifier_shape
from latent.verifier_file import VerifierCard, folder_verifier


def make_verifier(reasoner: Reasoner) -> Verifier:
    """A random verifier for a reasoner, in its precision."""
    torch.manual_seed(3)
    verifier = Verifier(verifier_shape(reasoner, 16))
    torch.nn.init.normal_(verifier.judge[-1].weight)  # type: ignore[arg-type]
    return verifier.to(reasoner.compute_dtype).requires_grad_(False).eval()


def add_verifier(folder: Path) -> Path:
    """Put a random verifier into a reasoner's folder; returns the verifier's own folder."""
    reasoner = load_reasoner(folder)
    verifier = make_verifier(reasoner)
    place = folder_verifier(folder)
    save_verifier(place, verifier, VerifierCard(verifier.shape, reasoner.fingerprint))
    return place
