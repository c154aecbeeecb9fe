"""Loads and saves reasoner and sampler folders. Safetensors and JSON only, never a pickle.

`latent.folders` describes the layout of a folder.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import torch
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
)
from transformers import logging as transformers_logging

from latent.adapter import Adapter
from latent.attention import ATTENTION_NAME
from latent.device import resolve_dtype
from latent.errors import FormatError, GtsError, MismatchError, NotFoundError
from latent.files import (
    load_tensors,
    read_json,
    read_weight_map,
    save_tensors,
    tensor_dtypes,
    write_json,
)
from latent.folders import (
    SamplerCard,
    fingerprint,
    read_format,
    read_sampler_card,
    weights_digest,
)
from latent.format import Base, Projection, ReasonerFormat
from latent.merging import load_merged
from latent.reasoner import ProjectionMLP, Reasoner
from latent.samplers import GaussianThoughtSampler, LearnedSampler, Sampler
from latent.specs import SamplerSpec
from latent.supported import check_decoder
from latent.zoo import resolve_sampler

__all__ = [
    "SamplerCard",
    "check_finite",
    "load_decoder",
    "load_projection",
    "load_reasoner",
    "load_sampler",
    "load_tokenizer",
    "save_reasoner",
    "save_sampler",
]

_log = logging.getLogger(__name__)

# transformers makes up an empty GPT-2 tokenizer where none of these exists.
_TOKENIZER_FILES = ("tokenizer.json", "vocab.json", "tokenizer.model")
_FLOATING = ("F64", "F32", "F16", "BF16")  # as safetensors names them


def load_reasoner(
    folder: Path,
    *,
    name: str | None = None,
    device: str = "cpu",
    dtype: str = "fp32",
    known_fingerprint: str | None = None,
) -> Reasoner:
    """Load a reasoner folder; missing or extra weights are errors. Hashes it unless that was done.

    `dtype` is what `resolve_dtype` reads. For int8 the decoder is loaded in fp32 and rounded (see
    `latent.int8`), if it is large enough.
    """
    kind = resolve_dtype(dtype, torch.device(device))
    folder = Path(folder)
    if not folder.is_dir():
        raise NotFoundError(f"no reasoner folder at {folder}", param="model")
    format = read_format(folder)
    is_int8 = kind == torch.int8
    held = torch.float32 if is_int8 else kind
    model = load_decoder(folder, held, format.base)
    tokenizer = load_tokenizer(folder)
    _check_fit(folder, format, model, tokenizer)
    projection = None
    if format.projection is not None:
        width = model.config.hidden_size
        projection = load_projection(folder, format.projection, width, held)
    reasoner = Reasoner(
        format,
        cast(Any, model).to(torch.device(device)),
        tokenizer,
        projection.to(device) if projection else None,
        name=name or folder.name,
        fingerprint=known_fingerprint or fingerprint(folder),
        folder=folder,
        is_int8=is_int8,
    )
    if dtype == "int8" and not reasoner.is_int8:
        _log.warning(
            "%s stays fp32: int8 would be slower for a decoder of width %d",
            reasoner.name,
            reasoner.width,
        )
    return reasoner


def _check_fit(
    folder: Path, format: ReasonerFormat, model: PreTrainedModel, tokenizer: Any
) -> None:
    """Refuse a `reasoner.json` or a tokenizer that does not fit the decoder."""
    rows = cast(Any, model.get_input_embeddings()).weight.shape[0]
    window = getattr(model.config, "max_position_embeddings", None)
    strange = [token for token in format.token_ids if not 0 <= token < rows]
    if (highest := max(tokenizer.get_vocab().values(), default=0)) >= rows:
        raise FormatError(
            f"{folder}: its tokenizer has a token {highest}, and the decoder has {rows} tokens"
        )
    if strange:
        problem = f"{strange[0]} is not one of the decoder's {rows} tokens"
    elif window is not None and format.suffix_capacity >= window:
        problem = (
            f"thoughts and answer take up to {format.suffix_capacity} tokens, and the context window "
            f"has {window}"
        )
    elif format.projection is None and (folder / "projection.safetensors").exists():
        problem = "it describes no projection, but projection.safetensors is there"
    else:
        return
    raise FormatError(f"{folder / 'reasoner.json'}: {problem}")


def load_tokenizer(folder: Path) -> Any:
    """Load a folder's own tokenizer, or say that there is none."""
    if not any((folder / name).is_file() for name in _TOKENIZER_FILES):
        raise NotFoundError(f"{folder} has no tokenizer (none of {', '.join(_TOKENIZER_FILES)})")
    try:
        auto: Any = AutoTokenizer
        tokenizer = auto.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        tokenizer.decode(tokenizer.encode("1 + 1"))  # settings may be wrong and load all the same
        return tokenizer
    except Exception as error:  # transformers raises whatever its parts raise
        first_line = str(error).strip().partition("\n")[0]
        raise FormatError(f"{folder}: its tokenizer does not load: {first_line}") from error


def load_projection(
    folder: Path, shape: Projection, width: int, dtype: torch.dtype = torch.float32
) -> ProjectionMLP:
    """Load what stands between a CODI state and what is fed back."""
    with torch.device("meta"):
        projection = ProjectionMLP(
            width, shape.hidden, shape.layer_norm_eps, layer_norm=shape.layer_norm
        )
    load_strictly(projection, folder / "projection.safetensors", dtype)
    return projection


def load_decoder(folder: Path, dtype: torch.dtype, base: Base | None = None) -> PreTrainedModel:
    """Load a folder's decoder to serve lanes; name every missing or unexpected weight.

    With a base, its weights and the folder's adapter are merged.
    """
    if base is None:
        _check_decoder_files(folder)
    hub_logging: Any = transformers_logging
    hub_logging.disable_progress_bar()
    verbosity = hub_logging.get_verbosity()
    hub_logging.set_verbosity_error()  # what it would warn of is an error here
    options: dict[str, Any] = {"dtype": dtype, "local_files_only": True}
    try:
        if base is None:
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                folder,
                use_safetensors=True,
                trust_remote_code=False,
                output_loading_info=True,
                **options,
            )
        else:
            config = AutoConfig.from_pretrained(folder, local_files_only=True)
            weights = load_merged(folder, base)
            kind: Any = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
            loaded = kind.from_pretrained(
                None, config=config, state_dict=weights, output_loading_info=True, **options
            )
    except GtsError:
        raise
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
    check_finite(model.state_dict(), folder)
    model.set_attn_implementation(ATTENTION_NAME)
    return model  # type: ignore[no-any-return]


def _check_decoder_files(folder: Path) -> None:
    """Refuse files that transformers would follow too far: before it is called, from headers alone."""
    config, whole = read_json(folder / "config.json"), folder / "model.safetensors"
    if not isinstance(config, dict):
        raise FormatError(f"{folder / 'config.json'} is not an object")
    names = [whole.name]
    if not whole.is_file():
        names = sorted(set(read_weight_map(folder / "model.safetensors.index.json").values()))
    dtypes = {name: kind for file in names for name, kind in tensor_dtypes(folder / file).items()}
    wrong = sorted(name for name, kind in dtypes.items() if kind not in _FLOATING)
    if wrong:
        raise FormatError(f"{folder}: {wrong[0]} is {dtypes[wrong[0]]}, not a floating type")
    for name in ("num_hidden_layers", "n_layer"):
        layers = config.get(name, 0)
        if type(layers) is not int or not 0 <= layers <= len(dtypes):
            raise FormatError(
                f"{folder}: config.json has {name} {str(layers)[:40]}, and the weights are "
                f"{len(dtypes)} tensors"
            )


def save_reasoner(
    folder: Path,
    format: ReasonerFormat,
    model: PreTrainedModel,
    tokenizer: Any,
    projection: ProjectionMLP | None = None,
    adapter: tuple[Adapter, Mapping[str, torch.Tensor]] | None = None,
) -> None:
    """Write a reasoner folder: all of it beside its place first, `reasoner.json` moved in last.

    An adapter's settings and factors are written in place of the decoder's weights.
    """
    cast(Any, transformers_logging).disable_progress_bar()
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as name:
        beside = Path(name)
        if adapter is None:
            model.save_pretrained(beside)
        else:
            model.config.save_pretrained(beside)
            adapter[0].save(beside, adapter[1])
        tokenizer.save_pretrained(beside)
        if projection is not None:
            save_tensors(beside / "projection.safetensors", projection.state_dict())
        whole = replace(format, weights_sha256=weights_digest(beside))
        # Weights of an older folder: any left over would be loaded, or fingerprinted.
        for stale in (*folder.glob("*.safetensors"), *folder.glob("*.safetensors.index.json")):
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
    if card.width != reasoner.width:
        raise MismatchError(
            f"the sampler in {folder} is for thoughts of {card.width} numbers, and those of "
            f"{reasoner.name} have {reasoner.width}",
            param="sampler",
        )
    with torch.device("meta"):
        heads = GaussianThoughtSampler(
            card.width, log_std_floor=card.log_std_floor, directions=card.directions
        )
    load_strictly(heads, folder / "sampler.safetensors", reasoner.compute_dtype)
    return LearnedSampler(spec, heads.to(reasoner.device).requires_grad_(False), card.schedule)


def load_strictly(module: torch.nn.Module, path: Path, dtype: torch.dtype) -> None:
    """Fill a module without weights from a safetensors file that has exactly its tensors."""
    tensors, expected = load_tensors(path), module.state_dict()
    missing, extra = (
        sorted(expected.keys() - tensors.keys()),
        sorted(tensors.keys() - expected.keys()),
    )
    both = sorted(expected.keys() & tensors.keys())
    wrong = [
        f"{name} is {tuple(tensors[name].shape)}, not {tuple(expected[name].shape)}"
        for name in both
        if tensors[name].shape != expected[name].shape
    ]
    wrong += [
        f"{name} is no floating type" for name in both if not tensors[name].is_floating_point()
    ]
    parts = [f"missing {', '.join(missing)}"] if missing else []
    parts += [f"unexpected {', '.join(extra)}"] if extra else []
    if parts + wrong:
        raise MismatchError(f"{path}: {'; '.join(parts + wrong)}")
    own = {name: tensor.to(dtype) for name, tensor in tensors.items()}
    check_finite(own, path)
    module.load_state_dict(own, assign=True)


def check_finite(tensors: Mapping[str, torch.Tensor], source: Path) -> None:
    """Refuse weights that are infinite or no numbers, by name."""
    for name, tensor in tensors.items():
        if tensor.numel() and not torch.stack(tensor.detach().aminmax()).isfinite().all():
            raise FormatError(
                f"{source}: {name} holds values that are infinite or no numbers (NaN)"
            )
