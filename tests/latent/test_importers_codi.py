import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoModelForCausalLM

from latent.decoding import read_text
from latent.errors import InputError, MismatchError
from latent.importers import import_codi
from latent.rollout import Ask, rollout
from latent.samplers import Sampler
from latent.specs import SamplerSpec
from latent.store import load_reasoner
from tests.latent.released import (
    CONFIGS,
    HIDDEN,
    QUESTION,
    RANK,
    Codi,
    plain_tokenizer,
    states,
    think,
    with_template,
    write_base,
)
from tests.reasoners import gpt2_config

K, ALPHA = 4, 2.0
PREFIX = "codi.base_model.model."
C_ATTN = f"{PREFIX}transformer.h.1.attn.c_attn"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return write_base(tmp_path / "base", gpt2_config())


def write(path: Path, module: nn.Module, **changes: Any) -> Path:
    """Save a state dict as released; a change to None takes a key out."""
    state = {**module.state_dict(), **changes}
    torch.save({name: tensor for name, tensor in state.items() if tensor is not None}, path)
    return path


def check_same(out: Path, codi: Codi, tolerance: float = 2e-5) -> None:
    """Compare all layers' states, logits and thoughts with the modules, adapters unmerged.

    The tolerance is for merged weights that are rounded to float32.
    """
    reasoner = load_reasoner(out, dtype="fp64")
    prompt = reasoner.encode(QUESTION)
    model = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float64)
    reference = codi.double()
    close = {"rtol": 0, "atol": tolerance}
    torch.testing.assert_close(states(model, prompt), states(reference.decoder, prompt), **close)
    ids = torch.tensor([prompt])
    torch.testing.assert_close(model(ids).logits, reference.decoder(ids).logits, **close)
    ask = Ask(prompt, seed=0, indices=(-1,))
    sampler = Sampler(SamplerSpec("deterministic"))
    contexts = rollout(reasoner, sampler, [ask], keep_thoughts=True)[0].contexts
    assert contexts is not None
    torch.testing.assert_close(
        contexts[0], think(reference.decoder, reference.feedback, prompt, K), **close
    )


@pytest.mark.parametrize("architecture", ["gpt2", "llama"])
def test_an_imported_codi_has_the_states_of_the_modules_it_was_written_from(
    tmp_path: Path, architecture: str
) -> None:
    config = CONFIGS[architecture]()
    base = write_base(tmp_path / "base", config)
    codi = Codi(config, alpha=ALPHA)
    checkpoint = write(tmp_path / "pytorch_model.bin", codi)
    out = import_codi(checkpoint, base, tmp_path / "out", thoughts=K, alpha=ALPHA)
    check_same(out, codi)
    exact = import_codi(
        checkpoint, base, tmp_path / "exact", thoughts=K, alpha=ALPHA, dtype=torch.float64
    )
    check_same(exact, codi, tolerance=1e-12)


def test_adapters_are_merged_in_float64(tmp_path: Path, base: Path) -> None:
    codi = Codi(gpt2_config(), alpha=ALPHA)
    checkpoint = write(tmp_path / "c", codi)
    out = import_codi(checkpoint, base, tmp_path / "out", thoughts=K, alpha=ALPHA)
    state = {name: tensor.double() for name, tensor in codi.state_dict().items()}
    product = state[f"{C_ATTN}.lora_B.default.weight"] @ state[f"{C_ATTN}.lora_A.default.weight"]
    exact = state[f"{C_ATTN}.base_layer.weight"] + (ALPHA / RANK) * product.T
    stored = load_file(out / "model.safetensors")["transformer.h.1.attn.c_attn.weight"]
    assert torch.equal(stored, exact.float())


@pytest.mark.parametrize("architecture", ["gpt2", "llama"])
@pytest.mark.parametrize(
    ("options", "notes"),
    [
        ({"prj_no_ln": True}, ["no LayerNorm"]),
        ({"use_prj": False}, ["no projection"]),
        ({"use_lora": False}, []),
        ({"use_lora": False, "use_prj": False}, ["no projection"]),
    ],
)
def test_the_other_forms_of_codi_are_read(
    tmp_path: Path, architecture: str, options: dict[str, bool], notes: list[str]
) -> None:
    config = CONFIGS[architecture]()
    base = write_base(tmp_path / "base", config)
    codi = Codi(config, alpha=ALPHA, **options)
    checkpoint = write(tmp_path / "pytorch_model.bin", codi)
    out = import_codi(checkpoint, base, tmp_path / "out", thoughts=K, alpha=ALPHA)
    check_same(out, codi)
    found = load_reasoner(out).format.provenance.get("notes", [])
    assert len(found) == len(notes)
    assert all(text in note for text, note in zip(notes, found, strict=True))


def test_the_training_modules_of_sim_cot_are_ignored_and_named(tmp_path: Path, base: Path) -> None:
    codi = Codi(gpt2_config(), alpha=ALPHA)
    extra = {
        "decoder.transformer.wte.weight": torch.full((2, 2), torch.nan),
        "pj_in.weight": torch.ones(2, 2),
        "pj_out.U": torch.ones(2, 2),
    }
    checkpoint = write(tmp_path / "c", codi, **extra)
    out = import_codi(checkpoint, base, tmp_path / "out", thoughts=K, alpha=ALPHA)
    check_same(out, codi)
    assert load_reasoner(out).format.provenance["notes"] == [
        f"ignored {part}.*, used in training only" for part in ("decoder", "pj_in", "pj_out")
    ]


def test_pairs_of_spaces_become_one_once(tmp_path: Path, base: Path) -> None:
    checkpoint = write(tmp_path / "c", Codi(gpt2_config()))
    reasoner = load_reasoner(import_codi(checkpoint, base, tmp_path / "out", thoughts=K))
    for spaces in range(1, 6):
        question = f" a{' ' * spaces}b "
        expected = plain_tokenizer().encode(question.strip().replace("  ", " "))
        assert reasoner.encode(question)[:-1] == tuple(expected)
    assert reasoner.encode("a   b") == reasoner.encode("a    b")


def test_eot_is_never_generated(tmp_path: Path, base: Path) -> None:
    codi = Codi(gpt2_config(), alpha=ALPHA)
    out = import_codi(write(tmp_path / "c", codi), base, tmp_path / "out", thoughts=K, alpha=ALPHA)
    eot = load_reasoner(out).format.end_id
    assert eot is not None
    first = tokens_of(out)[0]
    with torch.no_grad():  # make eot win wherever the first token did
        embedding = codi.decoder.transformer.wte.weight
        embedding[eot] = 1.5 * embedding[first]
    write(tmp_path / "c", codi)
    import_codi(tmp_path / "c", base, out, thoughts=K, alpha=ALPHA, overwrite=True)
    masked = tokens_of(out)
    data = json.loads((out / "reasoner.json").read_text())
    assert data.pop("suppressed_ids") == [eot]
    (out / "reasoner.json").write_text(json.dumps(data))
    assert eot in tokens_of(out)
    assert eot not in masked


def tokens_of(folder: Path) -> tuple[int, ...]:
    """Decode the deterministic trajectory of QUESTION."""
    reasoner = load_reasoner(folder)
    ask = Ask(reasoner.encode(QUESTION), seed=0, indices=(-1,))
    return rollout(reasoner, Sampler(SamplerSpec("deterministic")), [ask])[0].trajectories[0].tokens


def test_a_model_that_kept_eos_has_it_before_bot_and_after_eot(tmp_path: Path, base: Path) -> None:
    checkpoint = write(tmp_path / "c", Codi(gpt2_config()))
    plain = load_reasoner(import_codi(checkpoint, base, tmp_path / "a", thoughts=K))
    kept = load_reasoner(import_codi(checkpoint, base, tmp_path / "b", thoughts=K, keep_eos=True))
    *question, bot = plain.encode(QUESTION)
    assert kept.encode(QUESTION) == (*question, 0, bot)
    assert (plain.format.after_end_ids, kept.format.after_end_ids) == ((), (0,))
    assert plain.fingerprint != kept.fingerprint


def test_the_last_number_of_the_text_is_the_answer(tmp_path: Path, base: Path) -> None:
    checkpoint = write(tmp_path / "c", Codi(gpt2_config()))
    reasoner = load_reasoner(import_codi(checkpoint, base, tmp_path / "out", thoughts=K))
    for text, answer in (("5 so 1,234 eggs #", 1234), ("none", None), ("10 - 5", 5)):
        ids = tuple(reasoner.tokenizer.encode(text))
        assert read_text(reasoner, ids, None, False) == (text, answer)
        strict = replace(reasoner.format, answers="strict")
        reasoner.format, own = strict, reasoner.format
        assert read_text(reasoner, ids, None, False) == (text, None)
        reasoner.format = own


def test_the_ids_after_the_vocabulary_are_pad_bot_and_eot(tmp_path: Path, base: Path) -> None:
    checkpoint = write(tmp_path / "c", Codi(gpt2_config(), extra_rows=8))
    reasoner = load_reasoner(import_codi(checkpoint, base, tmp_path / "out", thoughts=K))
    first = len(plain_tokenizer())
    assert reasoner.tokenizer.pad_token_id == first
    assert (reasoner.format.start_id, reasoner.format.end_id) == (first + 1, first + 2)
    question = plain_tokenizer().encode(QUESTION.replace("  ", " "))
    assert reasoner.encode(f" {QUESTION}\n") == (*question, first + 1)
    assert reasoner.tokenizer.decode(reasoner.format.answer_prefix_ids).strip() == "The answer is:"
    assert reasoner.format.projection is not None
    assert reasoner.format.projection.hidden == HIDDEN
    assert reasoner.format.eos_ids == (0,)
    assert reasoner.format.max_answer_tokens == 16


def test_bos_follows_the_tokenizer_and_eos_can_be_chosen(tmp_path: Path) -> None:
    config = CONFIGS["llama"]()
    config.eos_token_id = [7, 0]
    checkpoint = write(tmp_path / "c", Codi(config))
    for name, template in (("without", "$A"), ("with", "{} $A")):
        tok = with_template(plain_tokenizer(), template, 3)
        base = write_base(tmp_path / name, config, tok)
        reasoner = load_reasoner(import_codi(checkpoint, base, tmp_path / f"{name}-a", thoughts=K))
        assert reasoner.encode("a b")[:-1] == tuple(tok.encode("a b"))
        assert (reasoner.encode(QUESTION)[0] == 3) == (name == "with")
        assert reasoner.format.eos_ids == (0,)  # the tokenizer's own, not all of the config's
    chosen = import_codi(checkpoint, base, tmp_path / "b", thoughts=K, eos=9)
    assert load_reasoner(chosen).format.eos_ids == (9,)
    for eos in (-1, 4000):
        with pytest.raises(InputError, match=f"--eos {eos} is not one of its 385 tokens"):
            import_codi(checkpoint, base, tmp_path / "none", thoughts=K, eos=eos)


def test_adapters_are_merged_with_alpha_32_unless_told_and_that_is_noted(
    tmp_path: Path, base: Path
) -> None:
    codi = Codi(gpt2_config())
    out = import_codi(write(tmp_path / "c", codi), base, tmp_path / "out", thoughts=K)
    state = codi.state_dict()
    product = state[f"{C_ATTN}.lora_B.default.weight"] @ state[f"{C_ATTN}.lora_A.default.weight"]
    expected = state[f"{C_ATTN}.base_layer.weight"] + (32 / RANK) * product.T  # (in, out)
    model = AutoModelForCausalLM.from_pretrained(out)
    torch.testing.assert_close(model.transformer.h[1].attn.c_attn.weight, expected)
    provenance = json.loads((out / "reasoner.json").read_text())["provenance"]
    assert provenance["options"] == {"thoughts": K, "alpha": 32.0, "eos": None, "ranks": [RANK]}
    assert provenance["notes"][0].startswith("LoRA's alpha is not in the file: 32 was assumed")
    told = import_codi(tmp_path / "c", base, tmp_path / "told", thoughts=K, alpha=16.0)
    assert "notes" not in json.loads((told / "reasoner.json").read_text())["provenance"]
    with pytest.raises(InputError, match="--alpha must be a positive number"):
        import_codi(tmp_path / "c", base, tmp_path / "b", thoughts=K, alpha=0.0)


@pytest.mark.parametrize("architecture", ["gpt2", "llama"])
def test_bfloat16_shards_are_merged_and_stored_in_float32(
    tmp_path: Path, architecture: str
) -> None:
    config = CONFIGS[architecture]()
    base = write_base(tmp_path / "base", config)
    codi = Codi(config, alpha=ALPHA)
    state = {name: tensor.bfloat16() for name, tensor in codi.state_dict().items()}
    codi.load_state_dict(state)  # parameters alone: rotary frequencies are never in bfloat16
    names = sorted(state.keys() - {f"{PREFIX}lm_head.weight"})  # tied: safetensors holds one
    (tmp_path / "sharded").mkdir()
    weight_map = {
        name: f"model-{n % 2 + 1:05}-of-00002.safetensors" for n, name in enumerate(names)
    }
    for file in set(weight_map.values()):
        part = {name: state[name] for name in names if weight_map[name] == file}
        save_file(part, tmp_path / "sharded" / file)
    index = tmp_path / "sharded" / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    out = import_codi(tmp_path / "sharded", base, tmp_path / "out", thoughts=K, alpha=ALPHA)
    assert load_reasoner(out).dtype == torch.float32
    check_same(out, codi)


def test_layers_without_adapters_are_read_as_they_are(tmp_path: Path, base: Path) -> None:
    codi = Codi(gpt2_config(), alpha=ALPHA)
    block = codi.decoder.transformer.h[1]
    block.attn.c_attn = block.attn.c_attn.base_layer
    out = import_codi(write(tmp_path / "c", codi), base, tmp_path / "out", thoughts=K, alpha=ALPHA)
    check_same(out, codi)


@pytest.mark.parametrize("architecture", ["gpt2", "llama"])
def test_the_converted_spelling_is_read_too(tmp_path: Path, architecture: str) -> None:
    config = CONFIGS[architecture]()
    codi = Codi(config, alpha=ALPHA)
    for name, module in list(codi.decoder.named_modules()):
        if hasattr(module, "base_layer"):
            parent, _, last = name.rpartition(".")
            setattr(codi.decoder.get_submodule(parent), last, module.base_layer)
    converted = {
        name.removeprefix(PREFIX)
        .replace("prj.ln.", "projector.4.")
        .replace("prj.", "projector."): tensor.clone()
        for name, tensor in codi.state_dict().items()
    }
    (tmp_path / "converted").mkdir()
    save_file(converted, tmp_path / "converted" / "model.safetensors")
    base = write_base(tmp_path / "base", config)
    check_same(import_codi(tmp_path / "converted", base, tmp_path / "out", thoughts=K), codi)
    del converted["projector.4.bias"]
    converted["projector.5.weight"] = torch.ones(2)
    save_file(converted, tmp_path / "converted" / "model.safetensors")
    with pytest.raises(MismatchError, match=r"missing projector\.4\.bias; unexpected projector\.5"):
        import_codi(tmp_path / "converted", base, tmp_path / "other", thoughts=K)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prj.ln.bias": None}, r"missing prj\.ln\.bias$"),
        ({"prj.1.weight": None}, r"missing prj\.1\.weight$"),
        ({f"{C_ATTN}.lora_B.default.weight": None}, r"missing \S+c_attn\.lora_B\.default\.weight$"),
        ({f"{C_ATTN}.base_layer.weight": None}, r"missing \S+c_attn\.base_layer\.weight$"),
        ({f"{C_ATTN}.weight": torch.ones(32, 96)}, r"unexpected \S+c_attn\.weight$"),
        ({"prj.0.weight": torch.ones(1)}, r"unexpected prj\.0\.weight$"),
        ({"embedding.weight": torch.ones(1)}, r"unexpected embedding\.weight$"),
        (
            {f"{PREFIX}transformer.h.0.lora_A.default.weight": torch.ones(3, 32)},
            r"unexpected \S+h\.0\.lora_A\.default\.weight$",
        ),
        (
            {f"{C_ATTN}.lora_B.default.weight": torch.ones(96, 5)},
            r"lora_B\.default\.weight is \(96, 5\), not \(96, 3\)$",
        ),
        ({f"{C_ATTN}.lora_A.default.weight": torch.ones(0, 32)}, r"is \(0, 32\), not \(1, 32\)"),
        ({"prj.3.weight": torch.ones(32, 23)}, r"prj\.3\.weight is \(32, 23\), not \(32, 24\)$"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused_by_key(
    tmp_path: Path, base: Path, changes: dict[str, Any], message: str
) -> None:
    checkpoint = write(tmp_path / "c", Codi(gpt2_config()), **changes)
    with pytest.raises(MismatchError, match=message):
        import_codi(checkpoint, base, tmp_path / "out", thoughts=K)
    assert not (tmp_path / "out").exists()


def test_too_few_rows_or_another_vocabulary_are_refused(tmp_path: Path, base: Path) -> None:
    few = write(tmp_path / "few", Codi(gpt2_config(), extra_rows=2))
    with pytest.raises(MismatchError, match=r"384 rows .* '<\|eocot\|>' has id 384"):
        import_codi(few, base, tmp_path / "out", thoughts=K)
    longer = plain_tokenizer()
    longer.add_tokens(["<|mine|>"])
    other = write_base(tmp_path / "other", gpt2_config(), longer)
    checkpoint = write(tmp_path / "c", Codi(gpt2_config()))
    with pytest.raises(MismatchError, match=r"\(382 tokens\), .* get ids 383, 384, 385"):
        import_codi(checkpoint, other, tmp_path / "out", thoughts=K)


def test_k_is_never_guessed(tmp_path: Path, base: Path) -> None:
    with pytest.raises(InputError, match="--thoughts K"):
        import_codi(tmp_path / "c", base, tmp_path / "out", thoughts=None)
