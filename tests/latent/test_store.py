import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import latent.errors
from latent.errors import FormatError, GtsError, MismatchError, NotFoundError
from latent.files import save_tensors, write_atomically
from latent.folders import SamplerCard, fingerprint, sampler_folders
from latent.reasoner import Reasoner
from latent.rollout import Ask, rollout
from latent.samplers import GaussianThoughtSampler, LearnedSampler
from latent.specs import SamplerSpec
from latent.store import load_reasoner, load_sampler, save_reasoner, save_sampler
from tests.reasoners import QUESTIONS, make_reasoner
from tests.samplers import make_sampler


def save(reasoner: Reasoner, folder: Path) -> Path:
    projection = reasoner._feedback if reasoner.format.projection else None
    save_reasoner(folder, reasoner.format, reasoner._model, reasoner.tokenizer, projection)  # type: ignore[arg-type]
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save(make_reasoner("codi", "llama", dtype=torch.float32), tmp_path / "codi-test")


@pytest.fixture
def sampler_folder(folder: Path) -> Path:
    path = folder / "samplers" / "default"
    save_sampler(path, GaussianThoughtSampler(32), SamplerCard("gts", 32, fingerprint(folder)))
    return path


@pytest.mark.parametrize(
    ("kind", "architecture"), [("coconut", "gpt2"), ("codi", "llama"), ("cot", "gpt2")]
)
def test_a_saved_reasoner_loads_as_the_same_reasoner(
    kind: str, architecture: str, tmp_path: Path
) -> None:
    original = make_reasoner(kind, architecture, dtype=torch.float32)
    loaded = load_reasoner(save(original, tmp_path / "it"))
    assert replace(loaded.format, weights_sha256=None) == original.format
    assert loaded.name == "it"
    spec = "dropout:0.2"
    results = [
        rollout(r, make_sampler(spec), [Ask(r.encode(QUESTIONS[0]), 1, (-1, 0, 1, 2))])[
            0
        ].trajectories
        for r in (original, loaded)
    ]
    assert results[0] == results[1]


def test_the_fingerprint_follows_weights_and_computed_fields_only(folder: Path) -> None:
    before = fingerprint(folder)
    data = json.loads((folder / "reasoner.json").read_text())
    data["provenance"] = {"note": "renamed"}
    (folder / "reasoner.json").write_text(json.dumps(data))
    (folder / "calibration.json").write_text("{}")
    assert fingerprint(folder) == before
    data["thoughts"] += 1
    (folder / "reasoner.json").write_text(json.dumps(data))
    assert fingerprint(folder) != before
    data["thoughts"] -= 1
    (folder / "reasoner.json").write_text(json.dumps(data))
    data["weights_sha256"] = None
    (folder / "reasoner.json").write_text(json.dumps(data))
    flip_a_bit(folder / "projection.safetensors")
    assert fingerprint(folder) != before


def test_fields_that_came_later_leave_old_folders_and_fingerprints_as_they_are(
    folder: Path,
) -> None:
    data = json.loads((folder / "reasoner.json").read_text())
    assert set(data["prompt"]) == {"prefix_ids", "strip", "collapse_spaces", "suffix"}
    assert set(data["projection"]) == {"hidden", "layer_norm_eps"}
    assert set(data) == {
        "kind", "thoughts", "prompt", "answer_template", "answer_prefix_ids", "eos_ids", "start_id",
        "end_id", "max_answer_tokens", "max_reasoning_tokens", "projection", "weights_sha256",
        "provenance", "format",
    }  # fmt: skip
    before = fingerprint(folder)
    later = {
        "after_end_ids": [],
        "suppressed_ids": [],
        "ignore_first_eos": False,
        "answers": "strict",
    }
    (folder / "reasoner.json").write_text(json.dumps({**data, **later}))
    assert fingerprint(folder) == before
    for change in ({"suppressed_ids": [2]}, {"answers": "last-number"}, {"after_end_ids": [0]}):
        (folder / "reasoner.json").write_text(json.dumps({**data, **change}))
        assert fingerprint(folder) != before


def flip_a_bit(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)


def test_a_single_flipped_bit_is_refused(folder: Path, sampler_folder: Path) -> None:
    reasoner = load_reasoner(folder)
    flip_a_bit(sampler_folder / "sampler.safetensors")
    with pytest.raises(FormatError, match="is damaged"):
        load_sampler(reasoner, SamplerSpec.parse("gts"), sampler_folder)
    flip_a_bit(folder / "model.safetensors")
    with pytest.raises(FormatError, match="they are damaged"):
        load_reasoner(folder)


def test_a_sampler_comes_back_as_it_was_saved(folder: Path, sampler_folder: Path) -> None:
    reasoner = load_reasoner(folder)
    assert sampler_folders(folder) == {"default": sampler_folder}
    sampler = load_sampler(reasoner, SamplerSpec.parse("gts"), sampler_folder)
    assert isinstance(sampler, LearnedSampler)
    assert sampler.heads.width == 32


def test_a_sampler_trained_for_another_reasoner_is_refused(
    sampler_folder: Path, tmp_path: Path
) -> None:
    other = load_reasoner(
        save(make_reasoner("coconut", "gpt2", dtype=torch.float32), tmp_path / "other")
    )
    with pytest.raises(MismatchError, match="another reasoner"):
        load_sampler(other, SamplerSpec.parse("gts"), sampler_folder)


@pytest.mark.parametrize("name", ["model.safetensors", "projection.safetensors"])
@pytest.mark.parametrize("keep", [0, 5, 100, -10])
def test_truncated_weights_are_refused(folder: Path, name: str, keep: int) -> None:
    path = folder / name
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(FormatError):
        load_reasoner(folder)
    with pytest.raises(FormatError, match=name):
        fingerprint(folder)


def test_a_truncated_or_foreign_sampler_file_is_refused(folder: Path, sampler_folder: Path) -> None:
    reasoner, spec = load_reasoner(folder), SamplerSpec.parse("gts")
    path = sampler_folder / "sampler.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:-8])
    with pytest.raises(FormatError, match="truncated"):
        load_sampler(reasoner, spec, sampler_folder)
    save_tensors(path, {"mean.0.weight": torch.zeros(32, 32), "extra": torch.zeros(1)})
    with pytest.raises(MismatchError, match=r"missing .*mean\.0\.bias.*unexpected extra"):
        load_sampler(reasoner, spec, sampler_folder)
    (sampler_folder / "sampler.json").write_text('{"format": 1, "kind": "gts"}')
    with pytest.raises(FormatError, match="not a sampler card"):
        load_sampler(reasoner, spec, sampler_folder)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("model.safetensors", "model.norm.weight"),
        ("projection.safetensors", "fc1.bias"),
        ("samplers/default/sampler.safetensors", "mean.0.bias"),
    ],
)
def test_weights_that_are_no_numbers_are_refused_by_name(
    folder: Path, sampler_folder: Path, file: str, name: str, value: float
) -> None:
    tensors = load_file(folder / file)
    tensors[name][1] = value
    save_file(tensors, folder / file, metadata={"format": "pt"})
    data = json.loads((folder / "reasoner.json").read_text())
    (folder / "reasoner.json").write_text(json.dumps({**data, "weights_sha256": None}))
    with pytest.raises(FormatError, match=rf"{name} holds values that are infinite or no numbers"):
        load_sampler(load_reasoner(folder), SamplerSpec.parse("gts"), sampler_folder)


def test_an_infinity_that_only_a_smaller_type_has_is_refused_too(folder: Path) -> None:
    tensors = load_file(folder / "projection.safetensors")
    tensors["fc1.bias"][0] = 1e6
    save_file(tensors, folder / "projection.safetensors")
    data = json.loads((folder / "reasoner.json").read_text())
    (folder / "reasoner.json").write_text(json.dumps({**data, "weights_sha256": None}))
    load_reasoner(folder, dtype="bf16")
    with pytest.raises(FormatError, match=r"fc1\.bias holds values that are infinite"):
        load_reasoner(folder, dtype="fp16")


def test_an_index_that_points_elsewhere_is_refused(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder.parent / "outside.safetensors")
    index = folder / "model.safetensors.index.json"
    for name in ("../outside.safetensors", str(folder.parent / "outside.safetensors")):
        index.write_text(json.dumps({"weight_map": {"lm_head.weight": name}}))
        with pytest.raises(FormatError, match="not a file beside it"):
            load_reasoner(folder)


def test_code_beside_the_weights_is_never_run_or_asked_about(folder: Path, tmp_path: Path) -> None:
    (folder / "run.py").write_text(f"open({str(tmp_path / 'it-ran')!r}, 'w')")
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "mine", "auto_map": {"AutoModelForCausalLM": "run.Model"}}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(FormatError, match="does not load as a transformers decoder"):
        load_reasoner(folder)
    assert not (tmp_path / "it-ran").exists()


@pytest.mark.parametrize("name", ["reasoner.json", "config.json", "model.safetensors"])
def test_a_device_in_the_place_of_a_file_is_not_read(folder: Path, name: str) -> None:
    (folder / name).unlink()
    (folder / name).symlink_to("/dev/zero")
    with pytest.raises(NotFoundError, match=r"does not exist"):
        load_reasoner(folder)


def test_weights_of_a_wrong_type_or_more_layers_than_weights_are_refused(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 10**9}))
    with pytest.raises(FormatError, match="num_hidden_layers 1000000000, and the weights are"):
        load_reasoner(folder)
    (folder / "config.json").write_text(json.dumps(config))
    tensors = load_file(folder / "model.safetensors")
    tensors["model.norm.weight"] = tensors["model.norm.weight"].int()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(FormatError, match=r"model\.norm\.weight is I32, not a floating type"):
        load_reasoner(folder)


def test_missing_things_are_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="nowhere"):
        load_reasoner(tmp_path / "nowhere")
    (folder / "projection.safetensors").unlink()
    with pytest.raises(NotFoundError, match=r"projection\.safetensors"):
        load_reasoner(folder)
    (folder / "reasoner.json").unlink()
    with pytest.raises(NotFoundError, match=r"reasoner\.json"):
        load_reasoner(folder)


def test_weights_that_do_not_fit_the_config_are_named(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["num_hidden_layers"] = 4
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(FormatError, match=r"missing keys: .*layers\.3\."):
        load_reasoner(folder)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"thoughts": -1}, "thoughts"),
        ({"kind": "oracle"}, "kind"),
        ({"eos_ids": []}, "eos_ids"),
        ({"eos_ids": "x"}, "eos_ids"),
        ({"surprise": 1}, "unknown surprise"),
        ({"projection": None}, "no projection, but projection.safetensors is there"),
        ({"answers": "first"}, "answers 'first' is not strict, last-number"),
        ({"suppressed_ids": [5, "x"]}, "suppressed_ids must be a list of token ids"),
        ({"start_id": 9000}, "9000 is not one of the decoder's 382 tokens"),
        ({"thoughts": 150}, "context window has 160"),
        ({"answer_template": "###"}, "answer_template"),
        ({"format": 99}, "format 99"),
        ({"thoughts": "six"}, "thoughts has the wrong type"),
        ({"thoughts": 2.5}, "thoughts has the wrong type"),
        ({"answer_template": 5}, "answer_template has the wrong type"),
        ({"start_id": "x"}, "start_id has the wrong type"),
        ({"prompt": {"suffix": 5}}, "suffix has the wrong type"),
        ({"prompt": {"suffix": "\ud800"}}, "suffix is not Unicode text"),
        ({"answer_template": "{} {x}"}, "answer_template needs one {} and no other brace"),
        ({"projection": {"hidden": 24, "layer_norm_eps": float("nan")}}, "layer_norm_eps"),
    ],
)
def test_a_bad_reasoner_json_names_the_field(
    folder: Path, change: dict[str, object], said: str
) -> None:
    data = json.loads((folder / "reasoner.json").read_text())
    (folder / "reasoner.json").write_text(json.dumps({**data, **change}))
    with pytest.raises(FormatError, match=said):
        load_reasoner(folder)


def test_an_interrupted_save_leaves_the_old_file_whole(tmp_path: Path) -> None:
    path = tmp_path / "sampler.safetensors"
    save_tensors(path, {"a": torch.ones(3)})
    before = path.read_bytes()

    def dies_halfway(temporary: Path) -> None:
        temporary.write_bytes(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, dies_halfway)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_an_interrupted_save_of_a_reasoner_leaves_the_old_one_whole(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = fingerprint(folder)
    other = make_reasoner("codi", "llama", dtype=torch.float32, seed=5)

    def dies(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(type(other.tokenizer), "save_pretrained", dies)
    with pytest.raises(KeyboardInterrupt):
        save(other, folder)
    assert fingerprint(folder) == before
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_a_folder_without_its_tokenizer_is_refused(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{")
    with pytest.raises(FormatError, match="tokenizer does not load"):
        load_reasoner(folder)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(NotFoundError, match="has no tokenizer"):
        load_reasoner(folder)


def test_every_error_is_a_gts_error() -> None:
    named = [getattr(latent.errors, name) for name in latent.errors.__all__]
    errors = [each for each in named if isinstance(each, type)]
    assert all(issubclass(each, GtsError) for each in errors)
    assert len(errors) == 7


def test_a_reasoner_may_name_its_own_default_sampler(folder: Path) -> None:
    before = fingerprint(folder)
    data = json.loads((folder / "reasoner.json").read_text())
    for text, expected in ((None, "gts"), ("gaussian:0.5", "gaussian:0.5")):
        data["sampler"] = text
        (folder / "reasoner.json").write_text(json.dumps(data))
        assert load_reasoner(folder).format.default_sampler == expected
    assert fingerprint(folder) == before
    for text in ("magic", "token:0.7"):  # unknown, and not for hidden states
        data["sampler"] = text
        (folder / "reasoner.json").write_text(json.dumps(data))
        with pytest.raises(FormatError, match=r"reasoner\.json: sampler: "):
            load_reasoner(folder)
