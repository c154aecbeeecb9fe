"""Damaged and hostile files: each is refused with one line or loads and works, and none is executed.

Every mutation is drawn from its number alone, so a failure can be repeated by that number.
"""

import json
import os
import pickle
import random
import resource
import shutil
import signal
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch

from latent.errors import GtsError
from latent.folders import SamplerCard, fingerprint
from latent.importers import import_coconut
from latent.rollout import Ask, rollout
from latent.samplers import GaussianThoughtSampler
from latent.specs import SamplerSpec
from latent.store import load_reasoner, load_sampler, save_reasoner, save_sampler
from tests.latent.released import Coconut, write_base
from tests.reasoners import gpt2_config, llama_config, make_reasoner
from tests.verifiers import add_verifier

HANG_SECONDS = 60
MEMORY_KIB = 600 * 1024
QUESTION = "Tom runs 2 miles."
HOSTILE: tuple[Any, ...] = (
    None, True, 0, -1, 10**12, 10**40, 0.5, 1e308, float("nan"), "", "../../etc/passwd", "/etc/passwd",
    "x" * 100_000, "\ud800", "a\nb", [], {}, ["../x"], [-1, 10**12], {"../x": 1}, "{0}{}",
    "I64", "F8_E5M2",
)  # fmt: skip


class Runner:
    """A pickle of this runs a command when it is loaded without care."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.system, (self.command,))


def damage_bytes(rng: random.Random, raw: bytes) -> bytes:
    """Truncate, flip bits, overwrite, insert, repeat, or announce a huge header."""
    kind, at = rng.randrange(6), rng.randrange(len(raw))
    data = bytearray(raw)
    if kind == 0:
        return raw[:at]
    if kind == 1:
        for _ in range(rng.choice((1, 1, 4, 64))):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif kind == 2:
        data[at : at + rng.randrange(1, 200)] = rng.randbytes(rng.randrange(1, 200))
    elif kind == 3:
        data[at:at] = rng.randbytes(rng.choice((1, 8, 5000)))
    elif kind == 4:
        data[at:at] = data[at : at + rng.randrange(1, 3000)]
    else:
        data[:8] = rng.choice((2**63 - 1, 2**40, 99 * 2**20, 3, 0)).to_bytes(8, "little")
    return bytes(data)


def damage_json(rng: random.Random, raw: bytes) -> bytes:
    """Change, remove or add values anywhere in a document, or damage its text."""
    if rng.random() < 0.2:
        return damage_bytes(rng, raw)
    if rng.random() < 0.05:
        return b"[" * 200_000
    data = json.loads(raw)
    for _ in range(rng.choice((1, 1, 1, 3))):
        node, parent, key = data, None, None
        while isinstance(node, dict | list) and node and (parent is None or rng.random() < 0.7):
            parent = node
            key = rng.choice(sorted(node)) if isinstance(node, dict) else rng.randrange(len(node))
            node = node[key]
        if parent is None:
            return json.dumps(rng.choice(HOSTILE)).encode()
        if rng.random() < 0.7:
            parent[key] = rng.choice(HOSTILE)
        elif isinstance(parent, dict) and rng.random() < 0.5:
            parent[rng.choice(("../x", "auto_map", "quantization_config", "surprise"))] = node
        else:
            del parent[key]
    return json.dumps(data).encode()


def damage_safetensors(rng: random.Random, raw: bytes) -> bytes:
    """Change the header as JSON, put NaN into the data, or damage the bytes."""
    size = int.from_bytes(raw[:8], "little")
    header, data = raw[8 : 8 + size], raw[8 + size :]
    kind = rng.random()
    if kind < 0.4:
        return damage_bytes(rng, raw)
    if kind < 0.5:
        at = rng.randrange(len(data) // 4) * 4
        return raw[: 8 + size] + data[:at] + b"\x00\x00\xc0\x7f" + data[at + 4 :]
    header = damage_json(rng, header)
    return len(header).to_bytes(8, "little") + header + data


def damage_pickle(rng: random.Random, raw: bytes) -> bytes:
    """Damage an archive as a whole or the pickle inside it, or compress it."""
    kind = rng.random()
    if kind < 0.5 or not zipfile.is_zipfile(BytesIO(raw)):
        return damage_bytes(rng, raw)
    packed = BytesIO()
    method = zipfile.ZIP_DEFLATED if kind < 0.6 else zipfile.ZIP_STORED
    with zipfile.ZipFile(BytesIO(raw)) as old, zipfile.ZipFile(packed, "w", method) as new:
        for name in old.namelist():
            content = old.read(name)
            if name.endswith("data.pkl") and kind >= 0.6:
                content = damage_bytes(rng, content)
            elif kind < 0.6:
                content += bytes(rng.choice((0, 10**6)))
            target = f"../../{name}" if rng.random() < 0.05 else name
            new.writestr(target, content)
    return packed.getvalue()


@contextmanager
def watched() -> Iterator[None]:
    """Interrupt what hangs: the files are tiny, and loading one takes a fraction of a second."""

    def interrupt(_: int, __: FrameType | None) -> None:
        raise KeyboardInterrupt(f"not done after {HANG_SECONDS} s")

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.alarm(HANG_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def outcome(load: Callable[[], None]) -> str:
    """Run a loader; its refusal must be one line of bounded length."""
    try:
        with watched():
            load()
    except GtsError as error:
        message = str(error)
        assert message.strip()
        assert "\n" not in message
        assert len(message) < 2000
        return type(error).__name__
    return "loaded"


@pytest.fixture(scope="module")
def reasoner_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small CODI reasoner with a sampler and a verifier; its weights are in one file."""
    folder = tmp_path_factory.mktemp("fuzz") / "codi"
    config = llama_config(num_hidden_layers=1, hidden_size=8, intermediate_size=8)
    reasoner = make_reasoner("codi", config=config, dtype=torch.float32)
    assert reasoner.format.projection is not None
    projection: Any = reasoner._feedback
    save_reasoner(folder, reasoner.format, reasoner._model, reasoner.tokenizer, projection)
    card = SamplerCard("gts", 8, fingerprint(folder))
    save_sampler(folder / "samplers" / "default", GaussianThoughtSampler(8), card)
    add_verifier(folder)
    return folder


def use(folder: Path) -> None:
    """Load a reasoner, its sampler and its verifier, and answer a question."""
    reasoner = load_reasoner(folder)
    sampler = load_sampler(reasoner, SamplerSpec.parse("gts"), folder / "samplers" / "default")
    ask = Ask(reasoner.encode(QUESTION), seed=0, indices=(-1, 0))
    for trajectory in rollout(reasoner, sampler, [ask], verifier=reasoner.verifier)[0].trajectories:
        assert all(logprob <= 0 for logprob in trajectory.token_logprobs)  # and so none is NaN
        assert trajectory.score is None or 0 < trajectory.score < 1e9


REASONER_FILES: dict[str, Callable[[random.Random, bytes], bytes]] = {
    "reasoner.json": damage_json,
    "config.json": damage_json,
    "tokenizer.json": damage_json,
    "tokenizer_config.json": damage_json,
    "model.safetensors": damage_safetensors,
    "projection.safetensors": damage_safetensors,
    "samplers/default/sampler.json": damage_json,
    "samplers/default/sampler.safetensors": damage_safetensors,
    "verifiers/default/verifier.json": damage_json,
    "verifiers/default/verifier.safetensors": damage_safetensors,
}


def fuzz_a_reasoner(number: int, folder: Path, place: Path) -> str:
    """Damage one file of a reasoner folder, with the digests that protect it or without them."""
    rng = random.Random(number)
    name = rng.choice(list(REASONER_FILES))
    shutil.copytree(folder, place)
    path = place / name
    if rng.random() < 0.5:
        card = json.loads((place / "reasoner.json").read_text())
        card["weights_sha256"] = None
        (place / "reasoner.json").write_text(json.dumps(card))
    if rng.random() < 0.05:
        path.unlink()
        path.symlink_to(rng.choice(("/etc/passwd", "/dev/zero", path, place, "../../nowhere")))
    elif rng.random() < 0.1 and name == "model.safetensors":
        path.rename(place / "part.safetensors")
        names = rng.choice(
            ("../part.safetensors", "/part.safetensors", "part.safetensors", "x/../y")
        )
        index = {"weight_map": {"lm_head.weight": names}}
        (place / "model.safetensors.index.json").write_text(json.dumps(index))
    else:
        path.write_bytes(REASONER_FILES[name](rng, path.read_bytes()))
    return outcome(lambda: use(place))


def fuzz_a_checkpoint(number: int, base: Path, place: Path) -> str:
    """Damage a released checkpoint or its base, half of them with a command inside, and import it."""
    rng = random.Random(number)
    shutil.copytree(base, place)
    trace, path = place / "it-ran", place / "checkpoint_1"
    run = Runner(f"touch {trace}")
    state: dict[str, Any] = dict(Coconut(gpt2_config(n_layer=1, n_embd=8)).state_dict())
    if rng.random() < 0.25:
        torch.save(state, path)
        file = place / rng.choice(("config.json", "tokenizer.json", "tokenizer_config.json"))
        file.write_bytes(damage_json(rng, file.read_bytes()))
    else:
        if rng.random() < 0.5:
            state["run"] = run
        packed = BytesIO()
        kind = rng.choice(("archive", "archive", "legacy", "bare"))
        if kind == "bare":
            packed.write(pickle.dumps({"run": run}, protocol=rng.randrange(6)))
        else:
            is_archive, protocol = kind == "archive", rng.choice((2, 4))
            torch.save(state, packed, pickle, protocol, is_archive)
        path.write_bytes(damage_pickle(rng, packed.getvalue()))
    result = outcome(lambda: use_import(path, place, place / "out"))
    assert not trace.exists(), "the pickle was executed"
    return result


def use_import(checkpoint: Path, base: Path, out: Path) -> None:
    """Import a checkpoint and load the result."""
    load_reasoner(import_coconut(checkpoint, base, out, thoughts=2))


def fuzz(numbers: range, reasoner: Path, tmp_path: Path) -> None:
    """Run these mutations, three of four on a reasoner folder and one on a pickle."""
    base = write_base(tmp_path / "base", gpt2_config(n_layer=1, n_embd=8))
    outcomes: Counter[str] = Counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in numbers:
        place = tmp_path / str(number)
        try:
            is_pickle = number % 4 == 0
            one = fuzz_a_checkpoint if is_pickle else fuzz_a_reasoner
            outcomes[one(number, base if is_pickle else reasoner, place)] += 1
        except BaseException as error:
            error.add_note(f"mutation {number}")
            raise
        shutil.rmtree(place)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < MEMORY_KIB
    # Most damage is found; some of it (a renamed title, an unused default) changes nothing.
    assert outcomes["FormatError"] > len(numbers) / 3, outcomes
    assert outcomes["loaded"] < len(numbers) / 2, outcomes
    assert {path.name for path in tmp_path.iterdir()} == {"base"}


def test_damaged_files_are_refused_with_one_line(reasoner_folder: Path, tmp_path: Path) -> None:
    fuzz(range(200), reasoner_folder, tmp_path)


@pytest.mark.fuzz
def test_two_thousand_damaged_files_are_refused_with_one_line(
    reasoner_folder: Path, tmp_path: Path
) -> None:
    fuzz(range(200, 2200), reasoner_folder, tmp_path)
