import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from transformers import AutoModelForCausalLM

from latent.decoding import read_text
from latent.errors import FormatError, InputError, MismatchError, NotFoundError
from latent.importers import import_coconut, import_codi, import_cot
from latent.rollout import Ask, rollout
from latent.samplers import Sampler
from latent.specs import SamplerSpec
from latent.store import load_decoder, load_reasoner
from tests.latent.released import (
    QUESTION,
    Coconut,
    Codi,
    decoder,
    plain_tokenizer,
    states,
    think,
    with_template,
    write_base,
)
from tests.reasoners import gpt2_config, llama_config, tokenizer

K = 4


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return write_base(tmp_path / "base", gpt2_config())


def write(path: Path, module: nn.Module, **changes: Any) -> Path:
    """Save a state dict as released; a change to None takes a key out."""
    state = {**module.state_dict(), **changes}
    torch.save({name: tensor for name, tensor in state.items() if tensor is not None}, path)
    return path


def same_decoder(folder: Path, reference: nn.Module, prompt: tuple[int, ...]) -> bool:
    """Whether a folder's weights, and so its states and logits, are bit for bit the reference's."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ids = torch.tensor([prompt])
    return torch.equal(states(model, prompt), states(reference, prompt)) and torch.equal(
        model(ids).logits, reference(ids).logits
    )


def test_an_imported_coconut_has_the_states_of_the_modules_it_was_written_from(
    tmp_path: Path, base: Path
) -> None:
    coconut = Coconut(gpt2_config())
    out = import_coconut(
        write(tmp_path / "checkpoint_33", coconut), base, tmp_path / "out", thoughts=K
    )
    reasoner = load_reasoner(out, dtype="fp64")
    prompt = reasoner.encode(QUESTION)
    assert same_decoder(out, coconut.base_causallm, prompt)
    ask = Ask(prompt, seed=0, indices=(-1,))
    contexts = rollout(reasoner, Sampler(SamplerSpec("deterministic")), [ask], keep_thoughts=True)[
        0
    ].contexts
    assert contexts is not None
    expected = think(coconut.base_causallm.double(), nn.Identity(), prompt, K)
    torch.testing.assert_close(contexts[0], expected, rtol=0, atol=1e-8)


def test_the_three_tokens_come_after_the_vocabulary_in_the_released_order(
    tmp_path: Path, base: Path
) -> None:
    checkpoint = write(tmp_path / "checkpoint_33", Coconut(gpt2_config()))
    reasoner = load_reasoner(import_coconut(checkpoint, base, tmp_path / "out", thoughts=K))
    first = len(plain_tokenizer())
    assert (reasoner.format.start_id, reasoner.format.end_id) == (first, first + 1)
    assert reasoner.tokenizer.convert_tokens_to_ids("<|latent|>") == first + 2
    question = plain_tokenizer().encode(QUESTION + "\n")
    assert reasoner.encode(QUESTION) == (*question, first)
    assert reasoner.tokenizer.pad_token_id == reasoner.tokenizer.eos_token_id
    assert reasoner.tokenizer.decode(reasoner.format.answer_prefix_ids).rstrip() == "###"
    assert (reasoner.format.thoughts, reasoner.format.max_answer_tokens) == (K, 16)


def test_tokens_that_the_base_already_has_keep_their_ids(tmp_path: Path) -> None:
    base = write_base(tmp_path / "base", gpt2_config(), tokenizer())
    checkpoint = write(tmp_path / "checkpoint_33", Coconut(gpt2_config(), extra_rows=1))
    reasoner = load_reasoner(import_coconut(checkpoint, base, tmp_path / "out", thoughts=K))
    assert (reasoner.format.start_id, reasoner.format.end_id) == (1, 2)
    assert reasoner.tokenizer.convert_tokens_to_ids("<|latent|>") == len(tokenizer())


def test_rows_beyond_the_known_tokens_are_kept(tmp_path: Path, base: Path) -> None:
    coconut = Coconut(gpt2_config(), extra_rows=11)
    out = import_coconut(write(tmp_path / "c", coconut), base, tmp_path / "out", thoughts=K)
    assert load_decoder(out, torch.float32).config.vocab_size == len(tokenizer()) + 11
    assert same_decoder(out, coconut.base_causallm, (5, 9, 12))


def test_known_passengers_are_left_out_by_name(tmp_path: Path, base: Path) -> None:
    coconut = Coconut(gpt2_config())
    passengers = {
        "expainable_llm.transformer.wte.weight": torch.ones(2, 2),
        "base_causallm.transformer.h.0.attn.bias": torch.ones(1, 1, 4, 4, dtype=torch.bool),
        "base_causallm.transformer.h.2.attn.masked_bias": torch.tensor(-1e4),
    }
    checkpoint = write(tmp_path / "c", coconut, **passengers)
    out = import_coconut(checkpoint, base, tmp_path / "out", thoughts=10)
    assert same_decoder(out, coconut.base_causallm, (5, 9, 12))
    notes = load_reasoner(out).format.provenance["notes"]
    assert notes == ["ignored expainable_llm.*, used in training only"]
    cot = write(tmp_path / "d", coconut.base_causallm, **{"expainable_llm.a": torch.ones(1)})
    with pytest.raises(MismatchError, match=r"unexpected expainable_llm\.a"):
        import_cot(cot, base, tmp_path / "cot", max_reasoning_tokens=8)


@pytest.mark.parametrize("left_out", ["lm_head.weight", "transformer.wte.weight"])
def test_one_of_two_tied_weights_is_enough(tmp_path: Path, base: Path, left_out: str) -> None:
    coconut = Coconut(gpt2_config())
    changes = {f"base_causallm.{left_out}": None, "embedding.weight": None}
    checkpoint = write(tmp_path / "c", coconut, **changes)
    out = import_coconut(checkpoint, base, tmp_path / "out", thoughts=K)
    assert same_decoder(out, coconut.base_causallm, (5, 9, 12))


@pytest.mark.parametrize("has_alias", [True, False])
def test_a_head_that_differs_from_a_tied_embedding_is_tied_as_released_code_does(
    tmp_path: Path, base: Path, has_alias: bool
) -> None:
    coconut = Coconut(gpt2_config(tie_word_embeddings=False))
    state = coconut.state_dict()
    if not has_alias:
        del state["embedding.weight"]
    torch.save(state, tmp_path / "c")
    out = import_coconut(tmp_path / "c", base, tmp_path / "out", thoughts=K)
    # What the released code does: the file is loaded into a model whose two weights are one.
    reference = Coconut(gpt2_config())
    reference.load_state_dict(state, strict=has_alias)
    assert same_decoder(out, reference.base_causallm, (5, 9, 12))
    (note,) = load_reasoner(out).format.provenance["notes"]
    kept = "transformer.wte.weight" if has_alias else "lm_head.weight"
    assert f"{kept} is used for both" in note


def test_an_untied_base_needs_its_head(tmp_path: Path) -> None:
    config = gpt2_config(tie_word_embeddings=False)
    base = write_base(tmp_path / "base", config)
    checkpoint = write(tmp_path / "c", Coconut(config), **{"base_causallm.lm_head.weight": None})
    with pytest.raises(MismatchError, match=r"missing base_causallm\.lm_head\.weight$"):
        import_coconut(checkpoint, base, tmp_path / "out", thoughts=K)


def test_an_imported_cot_has_the_states_of_the_decoder_it_was_written_from(
    tmp_path: Path,
) -> None:
    config = gpt2_config(n_positions=256)
    base = write_base(tmp_path / "base", config)
    model = decoder(config, extra_rows=0)
    out = import_cot(write(tmp_path / "checkpoint_8", model), base, tmp_path / "out")
    reasoner = load_reasoner(out)
    assert reasoner.encode(QUESTION) == tuple(plain_tokenizer().encode(QUESTION + "\n"))
    assert same_decoder(out, model, reasoner.encode(QUESTION))
    assert (reasoner.format.kind, reasoner.format.thoughts) == ("cot", 0)
    assert (reasoner.format.max_reasoning_tokens, reasoner.format.max_answer_tokens) == (160, 16)


def test_bos_and_other_ids_come_where_the_tokenizer_adds_them(tmp_path: Path) -> None:
    config = llama_config(bos_token_id=3, eos_token_id=0)
    coconut = Coconut(config)
    checkpoint = write(tmp_path / "c", coconut)
    for number, template in enumerate(("$A", "{} $A", "{} $A {}")):
        tok = with_template(plain_tokenizer(), template, 3)
        base = write_base(tmp_path / f"base-{number}", config, tok)
        out = import_coconut(checkpoint, base, tmp_path / f"out-{number}", thoughts=K)
        reasoner = load_reasoner(out)
        assert reasoner.encode(QUESTION)[:-1] == tuple(tok.encode(QUESTION + "\n"))
        assert (3 in reasoner.encode(QUESTION)) == (number > 0)
    assert same_decoder(out, coconut.base_causallm, (3, 9, 12))


def test_questions_are_not_stripped(tmp_path: Path, base: Path) -> None:
    checkpoint = write(tmp_path / "c", Coconut(gpt2_config()))
    reasoner = load_reasoner(import_coconut(checkpoint, base, tmp_path / "out", thoughts=K))
    for question in (f"  {QUESTION} ", "a   b\n"):
        assert reasoner.encode(question)[:-1] == tuple(plain_tokenizer().encode(question + "\n"))


def test_only_one_end_of_text_stops_and_not_as_the_first_token(tmp_path: Path) -> None:
    config = gpt2_config()
    config.eos_token_id = [7, 0]
    base = write_base(tmp_path / "base", config)
    checkpoint = write(tmp_path / "c", Coconut(gpt2_config()))

    def tokens(eos: int | None) -> tuple[int, ...]:
        out = import_coconut(
            checkpoint, base, tmp_path / "out", thoughts=K, eos=eos, overwrite=True
        )
        reasoner = load_reasoner(out)
        assert reasoner.format.eos_ids == (eos or 0,)
        ask = Ask(reasoner.encode(QUESTION), seed=0, indices=(-1,))
        sampler = Sampler(SamplerSpec("deterministic"))
        return rollout(reasoner, sampler, [ask])[0].trajectories[0].tokens

    free = tokens(None)
    later = next(n for n, token in enumerate(free) if n and token not in free[:n])
    assert tokens(free[later]) == free[: later + 1]
    stopped = tokens(free[0])
    assert len(stopped) > 1
    assert stopped == free[: len(stopped)]
    with pytest.raises(InputError, match="--eos 4000 is not one of its 385 tokens"):
        tokens(4000)


def test_the_last_number_after_the_last_hash_is_the_answer(tmp_path: Path, base: Path) -> None:
    checkpoint = write(tmp_path / "c", Coconut(gpt2_config()))
    reasoner = load_reasoner(import_coconut(checkpoint, base, tmp_path / "out", thoughts=K))
    for text, answer in (("5 ### 1,234", 1234), ("#7 then # none", None), ("no prefix 8", 8)):
        ids = tuple(reasoner.tokenizer.encode(text))
        assert read_text(reasoner, ids, None, False) == (text, answer)


def test_weights_are_stored_in_the_dtype_asked_and_a_value_too_large_is_refused(
    tmp_path: Path, base: Path
) -> None:
    checkpoint = write(tmp_path / "c", Coconut(gpt2_config()))
    out = import_coconut(checkpoint, base, tmp_path / "a", thoughts=K, dtype=torch.float16)
    assert {tensor.dtype for tensor in load_file(out / "model.safetensors").values()} == {
        torch.float16
    }
    large = {"base_causallm.transformer.ln_f.bias": torch.full((32,), 1e5)}
    checkpoint = write(tmp_path / "c", Coconut(gpt2_config()), **large)
    with pytest.raises(
        FormatError, match=r"transformer\.ln_f\.bias holds values that are infinite"
    ):
        import_coconut(checkpoint, base, tmp_path / "b", thoughts=K, dtype=torch.float16)


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_weights_that_are_no_numbers_are_refused_by_name(
    tmp_path: Path, base: Path, value: float
) -> None:
    bias = torch.zeros(32)
    bias[3] = value
    name = "base_causallm.transformer.ln_f.bias"
    checkpoint = write(tmp_path / "c", Coconut(gpt2_config()), **{name: bias})
    with pytest.raises(FormatError, match=rf"{name} holds values that are infinite or no numbers"):
        import_coconut(checkpoint, base, tmp_path / "out", thoughts=K)
    assert not (tmp_path / "out").exists()


def test_an_import_is_deterministic_and_says_where_it_came_from(tmp_path: Path, base: Path) -> None:
    checkpoint = write(tmp_path / "checkpoint_33", Coconut(gpt2_config()))
    outs = [import_coconut(checkpoint, base, tmp_path / name, thoughts=K) for name in "ab"]
    for name in ("reasoner.json", "model.safetensors", "tokenizer.json"):
        assert (outs[0] / name).read_bytes() == (outs[1] / name).read_bytes()
    provenance = json.loads((outs[0] / "reasoner.json").read_text())["provenance"]
    assert provenance["importer"] == "coconut"
    assert provenance["options"] == {"thoughts": K}
    (source,) = provenance["source"]
    assert source["file"] == "checkpoint_33"
    assert len(source["sha256"]) == 64


WTE = "base_causallm.transformer.wte.weight"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"base_causallm.transformer.ln_f.bias": None},
            r"missing base_causallm\.transformer\.ln_f",
        ),
        ({WTE: None, "base_causallm.lm_head.weight": None}, r"missing .*transformer\.wte\.weight"),
        ({"base_causallm.transformer.h.9.x": torch.ones(2)}, r"unexpected .*transformer\.h\.9\.x"),
        (
            {"base_causallm.transformer.wpe.weight": torch.ones(7, 32)},
            r"is \(7, 32\), not \(160, 32",
        ),
        ({"base_causallm.lm_head.weight": torch.ones(382, 32)}, r"is \(382, 32\), not \(385, 32\)"),
        ({"embedding.weight": torch.ones(385, 32)}, rf"embedding\.weight differs from {WTE}"),
        ({"base_causallm.transformer.ln_f.bias": torch.ones(32).int()}, "int32, not a floating"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused_by_key(
    tmp_path: Path, base: Path, changes: dict[str, Any], message: str
) -> None:
    checkpoint = write(tmp_path / "c", Coconut(gpt2_config()), **changes)
    with pytest.raises(MismatchError, match=message):
        import_coconut(checkpoint, base, tmp_path / "out", thoughts=K)
    assert not (tmp_path / "out").exists()


def test_all_differences_are_in_one_error_and_long_lists_are_cut(tmp_path: Path) -> None:
    base = write_base(tmp_path / "base", gpt2_config(n_layer=5))
    changes = {"base_causallm.transformer.wpe.weight": torch.ones(7, 32), "one": torch.ones(1)}
    checkpoint = write(tmp_path / "c", Coconut(gpt2_config()), **changes)
    with pytest.raises(MismatchError) as caught:
        import_coconut(checkpoint, base, tmp_path / "out", thoughts=K)
    message = str(caught.value)
    assert "missing base_causallm.transformer.h.3.ln_1.weight" in message
    assert "and 16 more" in message  # two layers of 12 tensors, 8 of them named
    assert "unexpected one" in message
    assert "(7, 32)" in message
    assert "\n" not in message


def test_an_embedding_without_rows_for_the_tokens_is_refused(tmp_path: Path, base: Path) -> None:
    checkpoint = write(tmp_path / "c", Coconut(gpt2_config(), extra_rows=2))
    with pytest.raises(MismatchError, match=r"384 rows .* '<\|latent\|>' has id 384"):
        import_coconut(checkpoint, base, tmp_path / "out", thoughts=K)


def test_a_checkpoint_of_another_kind_is_told_its_command(tmp_path: Path, base: Path) -> None:
    coconut = Coconut(gpt2_config())
    files = {
        "coconut": write(tmp_path / "coconut", coconut),
        "codi": write(tmp_path / "codi", Codi(gpt2_config())),
        "cot": write(tmp_path / "cot", coconut.base_causallm),
    }
    commands = {"coconut": import_coconut, "codi": import_codi, "cot": import_cot}
    for kind, path in files.items():
        for other, command in commands.items():
            if kind != other:
                options: dict[str, Any] = {} if other == "cot" else {"thoughts": K}
                with pytest.raises(MismatchError, match=rf"import it with gts import {kind}$"):
                    command(path, base, tmp_path / "out", **options)


def test_k_is_never_guessed(tmp_path: Path, base: Path) -> None:
    checkpoint = write(tmp_path / "c", Coconut(gpt2_config()))
    with pytest.raises(
        InputError, match=r"--thoughts K .*6 .*SIM-CoT on CODI; 10 in SIM-CoT on COC"
    ):
        import_coconut(checkpoint, base, tmp_path / "out", thoughts=None)
    with pytest.raises(InputError, match="at least 1"):
        import_coconut(checkpoint, base, tmp_path / "out", thoughts=0)
    with pytest.raises(InputError, match="context window has 160"):
        import_coconut(checkpoint, base, tmp_path / "out", thoughts=150)


def test_a_missing_or_unusable_base_is_refused(tmp_path: Path, base: Path) -> None:
    checkpoint = write(tmp_path / "c", Coconut(gpt2_config()))

    def attempt(folder: Path) -> None:
        import_coconut(checkpoint, folder, tmp_path / "out", thoughts=K)

    with pytest.raises(NotFoundError, match="no base folder at"):
        attempt(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotFoundError, match=r"config\.json does not exist"):
        attempt(tmp_path / "empty")
    gpt2_config().save_pretrained(tmp_path / "half")
    with pytest.raises(NotFoundError, match="has no tokenizer"):
        attempt(tmp_path / "half")
    (base / "config.json").write_text('{"model_type": "unheard-of"}')
    with pytest.raises(FormatError, match="does not load as a transformers folder"):
        attempt(base)


def test_a_tokenizer_that_hides_the_delimiter_is_refused_for_cot(tmp_path: Path) -> None:
    joined = plain_tokenizer()
    joined.add_tokens([f"### {digit}" for digit in range(10)])
    base = write_base(tmp_path / "base", gpt2_config(), joined)
    checkpoint = write(tmp_path / "c", decoder(gpt2_config(), extra_rows=10))
    with pytest.raises(FormatError, match="where the reasoning ends cannot be seen"):
        import_cot(checkpoint, base, tmp_path / "out", max_reasoning_tokens=8)
    with pytest.raises(InputError, match="--max-reasoning-tokens must be at least 1"):
        import_cot(checkpoint, base, tmp_path / "out", max_reasoning_tokens=0)


def test_a_folder_in_use_is_overwritten_only_when_told(tmp_path: Path, base: Path) -> None:
    checkpoint = write(tmp_path / "c", Coconut(gpt2_config()))
    out = import_coconut(checkpoint, base, tmp_path / "out", thoughts=K)
    (out / "projection.safetensors").write_bytes(b"left over from a CODI")
    with pytest.raises(InputError, match="not empty"):
        import_coconut(checkpoint, base, out, thoughts=K)
    import_coconut(checkpoint, base, out, thoughts=K + 1, overwrite=True)
    assert load_reasoner(out).format.thoughts == K + 1
    assert not (out / "projection.safetensors").exists()
    for place in (base, tmp_path):
        with pytest.raises(InputError, match="holds the input"):
            import_coconut(checkpoint, base, place, thoughts=K, overwrite=True)
    with pytest.raises(InputError, match="is a file"):
        import_coconut(checkpoint, base, checkpoint, thoughts=K)
