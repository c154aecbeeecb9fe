"""What can go wrong in a training, beside what can go wrong anywhere."""

from latent.errors import GtsError

__all__ = ["DivergedError"]


class DivergedError(GtsError):
    """The loss is not a number any more; the last checkpoint stands."""
