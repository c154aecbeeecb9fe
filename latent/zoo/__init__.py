"""The embedded reasoners and panels; resolves names and paths of reasoners, panels and samplers."""

from pathlib import Path

from latent.errors import NotFoundError
from latent.folders import DEFAULT_SAMPLER, check_base, sampler_folders
from latent.specs import SamplerSpec

__all__ = [
    "DEFAULT_LATENT_MODEL",
    "DEFAULT_MODEL",
    "SERVED_MODELS",
    "embedded_models",
    "embedded_panels",
    "find_panel",
    "resolve_model",
    "resolve_sampler",
]

DEFAULT_LATENT_MODEL = "coconut-tiny"
_EVERYDAY_MODEL = "smollm2-cot"


def embedded_models() -> dict[str, Path]:
    """List the reasoners that come with the package, by name."""
    folders = sorted(Path(__file__).parent.glob("*/reasoner.json"))
    return {folder.parent.name: folder.parent for folder in folders}


def _default_model() -> str:
    """The reasoner for everyday questions if its base is installed, else the default latent one."""
    folder = Path(__file__).parent / _EVERYDAY_MODEL
    try:
        check_base(folder)
    except NotFoundError:
        return DEFAULT_LATENT_MODEL
    return _EVERYDAY_MODEL


DEFAULT_MODEL = _default_model()
# What is served if nothing is said: the default, and one that thinks in hidden states.
SERVED_MODELS = tuple(dict.fromkeys((DEFAULT_MODEL, DEFAULT_LATENT_MODEL)))


def embedded_panels() -> dict[str, Path]:
    """List the panels that come with the package, by name."""
    folders = sorted(Path(__file__).parent.glob("*/panel.json"))
    return {folder.parent.name: folder.parent for folder in folders}


def find_panel(name_or_path: str) -> Path | None:
    """Find a panel: an embedded one by name, else a folder; None if it is no panel."""
    folder = embedded_panels().get(name_or_path, Path(name_or_path))
    is_panel = name_or_path not in embedded_models() and (folder / "panel.json").is_file()
    return folder if is_panel else None


def resolve_model(name_or_path: str) -> Path:
    """Find a reasoner: an embedded one by name, else a folder."""
    embedded = embedded_models()
    if name_or_path in embedded:
        return embedded[name_or_path]
    folder = Path(name_or_path)
    if (folder / "reasoner.json").is_file():
        return folder
    if find_panel(name_or_path) is not None:
        raise NotFoundError(
            f"{name_or_path!r} is a panel of several reasoners; give one reasoner here",
            param="model",
        )
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
