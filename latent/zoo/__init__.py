"""The embedded reasoners; resolves the names and paths of reasoners and samplers to folders."""

from pathlib import Path

from latent.errors import NotFoundError
from latent.folders import DEFAULT_SAMPLER, sampler_folders
from latent.specs import SamplerSpec

__all__ = ["DEFAULT_MODEL", "embedded_models", "resolve_model", "resolve_sampler"]

DEFAULT_MODEL = "coconut-tiny"


def embedded_models() -> dict[str, Path]:
    """List the reasoners that come with the package, by name."""
    folders = sorted(Path(__file__).parent.glob("*/reasoner.json"))
    return {folder.parent.name: folder.parent for folder in folders}


def resolve_model(name_or_path: str) -> Path:
    """Find a reasoner: an embedded one by name, else a folder."""
    embedded = embedded_models()
    if name_or_path in embedded:
        return embedded[name_or_path]
    folder = Path(name_or_path)
    if (folder / "reasoner.json").is_file():
        return folder
    known = ", ".join(embedded) or "none are embedded"
    what = "has no reasoner.json" if folder.is_dir() else "is neither embedded nor a folder"
    raise NotFoundError(
        f"model {name_or_path!r} {what}; give a reasoner folder or one of: {known}", param="model"
    )


def resolve_sampler(model_folder: Path, spec: SamplerSpec) -> Path | None:
    """Find the folder of a gts sampler inside its reasoner's; None for the other kinds."""
    if spec.kind != "gts":
        return None
    name = spec.name or DEFAULT_SAMPLER
    if "/" in name:
        return Path(name)
    folders = sampler_folders(model_folder)
    if name in folders:
        return folders[name]
    known = ", ".join(f"gts:{known}" for known in folders) or "it has none: train one"
    raise NotFoundError(
        f"no sampler {name!r} in {model_folder / 'samplers'}; {known}", param="sampler"
    )
