"""Released checkpoints → reasoner folders. Strict: what does not fit is named, and nothing written."""

from latent.importers.coconut import import_coconut, import_cot
from latent.importers.codi import import_codi

__all__ = ["import_coconut", "import_codi", "import_cot"]
