"""Reasoners and samplers in and out of their folders. Safetensors and JSON only, never a pickle.

The layout of a folder is told in `latent.folders`.
"""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from transformers import logging as transformers_logging

from latent.errors import FormatError, MismatchError, NotFoundError
from latent.files import load_tensors, save_tensors, write_json
from latent.folders import (
    SamplerCard,
    fingerprint,
    read_format,
    read_sampler_card,
    weights_digest,
)
from latent.format import Projection, ReasonerFormat
from latent.lanes import ATTENTION_NAME
from latent.reasoner import ProjectionMLP, Reasoner
from latent.samplers import GaussianThoughtSampler, LearnedSampler, Sampler
from latent.specs import SamplerSpec
from latent.supported import check_decoder
from latent.zoo import resolve_sampler

__all__ = [
    "SamplerCard",
    "load_decoder",
    "load_projection",
    "load_reasoner",
    "load_sampler",
    "load_tokenizer",
    "save_reasoner",
    "save_sampler",
]


# transformers makes up an empty GPT-2 tokenizer where none of these exists.
_TOKENIZER_FILES = ("tokenizer.json", "vocab.json", "tokenizer.model")


def load_reasoner(
    folder: Path,
    *,
    name: str | None = None,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    known_fingerprint: str | None = None,
) -> Reasoner:
    """Load a reasoner folder; missing or extra weights are errors. Hashes it unless that was done."""
    folder = Path(folder)
    if not folder.is_dir():
        raise NotFoundError(f"no reasoner folder at {folder}", param="model")
    format = read_format(folder)
    model = load_decoder(folder, dtype)
    width = model.config.hidden_size
    projection = None
    if format.projection is not None:
        projection = load_projection(folder, format.projection, width).to(device, dtype)
    return Reasoner(
        format,
        cast(Any, model).to(torch.device(device)),
        load_tokenizer(folder),
        projection,
        name=name or folder.name,
        fingerprint=known_fingerprint or fingerprint(folder),
        folder=folder,
    )


def load_tokenizer(folder: Path) -> Any:
    """Load a folder's own tokenizer, or say that there is none."""
    if not any((folder / name).is_file() for name in _TOKENIZER_FILES):
        raise NotFoundError(f"{folder} has no tokenizer (none of {', '.join(_TOKENIZER_FILES)})")
    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # transformers raises whatever its parts raise
        first_line = str(error).strip().partition("\n")[0]
        raise FormatError(f"{folder}: its tokenizer does not load: {first_line}") from error


def load_projection(folder: Path, shape: Projection, width: int) -> ProjectionMLP:
    """Load what stands between a CODI state and what is fed back."""
    projection = ProjectionMLP(width, shape.hidden, shape.layer_norm_eps)
    load_strictly(projection, folder / "projection.safetensors")
    return projection


def load_decoder(folder: Path, dtype: torch.dtype) -> PreTrainedModel:
    """Load a transformers folder to serve lanes; name every missing or unexpected weight."""
    hub_logging: Any = transformers_logging
    hub_logging.disable_progress_bar()
    verbosity = hub_logging.get_verbosity()
    hub_logging.set_verbosity_error()  # what it would warn of is an error here
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=dtype,
            local_files_only=True,
            use_safetensors=True,
            output_loading_info=True,
        )
    except Exception as error:  # transformers raises whatever its parts raise
        first_line = str(error).strip().partition("\n")[0]
        raise FormatError(
            f"{folder} does not load as a transformers decoder: {first_line}"
        ) from error
    finally:
        hub_logging.set_verbosity(verbosity)
    model, info = loaded
    wrong = {
        key: info[key]
        for key in ("missing_keys", "unexpected_keys", "mismatched_keys")
        if info[key]
    }
    if wrong:
        what = "; ".join(
            f"{k.replace('_', ' ')}: {', '.join(map(str, v))}" for k, v in wrong.items()
        )
        raise FormatError(f"{folder}: the weights do not fit config.json: {what}")
    check_decoder(model)
    model.set_attn_implementation(ATTENTION_NAME)
    return model  # type: ignore[no-any-return]


def save_reasoner(
    folder: Path,
    format: ReasonerFormat,
    model: PreTrainedModel,
    tokenizer: Any,
    projection: ProjectionMLP | None = None,
) -> None:
    """Write a reasoner folder: all of it beside its place first, `reasoner.json` moved in last."""
    cast(Any, transformers_logging).disable_progress_bar()
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as name:
        beside = Path(name)
        model.save_pretrained(beside)
        tokenizer.save_pretrained(beside)
        if projection is not None:
            save_tensors(beside / "projection.safetensors", projection.state_dict())
        whole = replace(format, weights_sha256=weights_digest(beside))
        for stale in folder.glob("*.safetensors"):
            stale.unlink()
        for path in beside.iterdir():
            path.replace(folder / path.name)
        write_json(folder / "reasoner.json", whole.to_json())


def save_sampler(folder: Path, heads: GaussianThoughtSampler, card: SamplerCard) -> None:
    """Write a sampler's weights and card; the card last, since loading begins with it."""
    tensors = {name: tensor.float() for name, tensor in heads.state_dict().items()}
    save_tensors(folder / "sampler.safetensors", tensors)
    write_json(folder / "sampler.json", {"format": 1, **vars(card)})


def load_sampler(reasoner: Reasoner, spec: SamplerSpec, folder: Path | None = None) -> Sampler:
    """Build the sampler of a spec; a gts one from its folder, if it was trained for this reasoner.

    Without `folder` it is looked for among the samplers of the reasoner's own folder.
    """
    reasoner.check_sampler(spec)
    if spec.kind != "gts":
        return Sampler(spec)
    if folder is None and reasoner.folder is not None:
        folder = resolve_sampler(reasoner.folder, spec)
    if folder is None or not folder.is_dir():
        raise NotFoundError(f"{reasoner.name} has no sampler {str(spec)!r}", param="sampler")
    card = read_sampler_card(folder)
    if card.reasoner_fingerprint != reasoner.fingerprint:
        raise MismatchError(
            f"the sampler in {folder} was trained for another reasoner (fingerprint "
            f"{card.reasoner_fingerprint[:12]}, {reasoner.name} has {reasoner.fingerprint[:12]})",
            param="sampler",
        )
    heads = GaussianThoughtSampler(card.width)
    load_strictly(heads, folder / "sampler.safetensors")
    return LearnedSampler(
        spec, heads.to(reasoner.device, reasoner.compute_dtype).requires_grad_(False)
    )


def load_strictly(module: torch.nn.Module, path: Path) -> None:
    """Fill a module from a safetensors file that has exactly its tensors."""
    tensors, expected = load_tensors(path), module.state_dict()
    missing, extra = (
        sorted(expected.keys() - tensors.keys()),
        sorted(tensors.keys() - expected.keys()),
    )
    wrong = [
        f"{name} is {tuple(tensors[name].shape)}, not {tuple(expected[name].shape)}"
        for name in sorted(expected.keys() & tensors.keys())
        if tensors[name].shape != expected[name].shape
    ]
    parts = [f"missing {', '.join(missing)}"] if missing else []
    parts += [f"unexpected {', '.join(extra)}"] if extra else []
    if parts + wrong:
        raise MismatchError(f"{path}: {'; '.join(parts + wrong)}")
    module.load_state_dict(tensors)
