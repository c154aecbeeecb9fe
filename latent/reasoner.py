"""A frozen reasoner: prefill, a step of all lanes, vocabulary head. No loop is here."""

from collections.abc import Sequence
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.cache_utils import Cache

from latent.calculator import Calculator
from latent.calibration import Calibrations
from latent.calibration_file import load_calibrations
from latent.dropout import DropoutMasks, DropoutSites, default_sites
from latent.encoding import Encoder
from latent.errors import UnsupportedError
from latent.folders import DEFAULT_SAMPLER
from latent.format import ReasonerFormat
from latent.int8 import quantise_
from latent.lanes import LaneCache, Prefix, PromptCache
from latent.noise import Site
from latent.regimes import Thresholds, load_thresholds
from latent.specs import SamplerSpec
from latent.spelled_equations import SignHead
from latent.static_lanes import StaticLanes
from latent.supported import check_decoder
from latent.verifier_file import find_verifier
from latent.votes import VoteKind

# The methods that load, solve and check import what they need: those modules import this one.
if TYPE_CHECKING:
    from latent.compiling import CompiledSteps
    from latent.reproducibility import Reproducibility
    from latent.samplers import Sampler
    from latent.solved import Solved
    from latent.stopping import Stop
    from latent.verifier import Verifier

__all__ = ["BUCKET", "ProjectionMLP", "Reasoner"]

# Prompts are padded to a multiple of this, each by its own length, so that the shapes of a question's
# products, and so its bits, do not depend on its batch.
BUCKET = 16


class ProjectionMLP(nn.Module):
    """CODI's f: Linear → GELU → Linear → LayerNorm, if it has one."""

    def __init__(
        self, width: int, hidden: int, layer_norm_eps: float = 1e-5, *, layer_norm: bool = True
    ) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, hidden)
        self.fc2 = nn.Linear(hidden, width)
        self.norm = nn.LayerNorm(width, eps=layer_norm_eps) if layer_norm else nn.Identity()

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Project states (…, D) to what is fed back (…, D)."""
        return torch.as_tensor(self.norm(self.fc2(nn.functional.gelu(self.fc1(hidden)))))


class Reasoner:
    """A decoder with its tokenizer, feedback function, and prompt and answer format."""

    def __init__(
        self,
        format: ReasonerFormat,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        projection: ProjectionMLP | None = None,
        *,
        name: str = "unnamed",
        fingerprint: str = "",
        folder: Path | None = None,
        is_int8: bool = False,
    ) -> None:
        check_decoder(model)
        self.format = format
        self.tokenizer = tokenizer
        self.name = name
        self.fingerprint = fingerprint
        self.folder = (
            folder  # where its samplers and calibration are; None if it was built in memory
        )
        self.compiled: CompiledSteps | None = None  # set by `compile_steps`
        self._learned: dict[str, Sampler] = {}
        self._model: Any = model.requires_grad_(False).train(False)
        self.encoder = Encoder(format, tokenizer, self.position_limit, name)
        _fuse_gelu(model)
        parts = [model] if projection is None else [model, projection]
        self.parameter_count = sum(p.numel() for part in parts for p in part.parameters())
        self._embedding: Any = model.get_input_embeddings()
        # For thoughts that a calculator reads; taken before int8 rounds the head.
        self.sign_head: SignHead | None = None
        if format.calculator:
            sign_ids = self.calculator.sign_ids  # also refuses a tokenizer that does not fit
            if format.is_latent:
                self.sign_head = SignHead.of(self._model.get_output_embeddings(), sign_ids)
        self.is_int8 = is_int8 and quantise_(model)
        self._decoder: Any = model.base_model
        self._head: Any = self._model.get_output_embeddings()
        self._embedding = model.get_input_embeddings()
        # COCONUT feeds the state back as it is.
        self._feedback: nn.Module = (
            projection.eval().requires_grad_(False) if projection else nn.Identity()
        )
        self._dropout = DropoutSites(self._decoder, model.config.num_hidden_layers)
        self.default_dropout_sites = default_sites(
            self._decoder, has_projection=projection is not None
        )
        self._try_out()

    def _try_out(self) -> None:
        """Run one prompt and one lane, so that a decoder that cannot serve lanes is refused at load."""
        try:
            prefix = self.prefill([(0,)])[0]
            self.step(prefix.hidden[None], LaneCache([prefix], [1], capacity=1), 0)
        except Exception as error:
            what = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
            raise UnsupportedError(
                f"the decoder {self._model.config.model_type!r} cannot be served in lanes: {what}"
            ) from error

    @property
    def width(self) -> int:
        """D, the size of a thought."""
        return int(self._embedding.weight.shape[1])

    @property
    def device(self) -> torch.device:
        """Where the decoder is."""
        return torch.device(self._model.device)

    @property
    def dtype(self) -> torch.dtype:
        """What states, keys and values are in; with int8 products too, they are fp32."""
        return torch.float32 if self.is_int8 else self._head.weight.dtype

    @property
    def precision(self) -> str:
        """What the decoder's products are computed in, such as float32 or int8."""
        return "int8" if self.is_int8 else str(self.dtype).removeprefix("torch.")

    @property
    def compute_dtype(self) -> torch.dtype:
        """What samplers and log-probabilities are computed in: at least float32."""
        return torch.promote_types(self.dtype, torch.float32)

    @property
    def layer_count(self) -> int:
        """Layers of the decoder."""
        return int(self._model.config.num_hidden_layers)

    @property
    def head_count(self) -> int:
        """Query heads of a layer."""
        return int(self._model.config.num_attention_heads)

    @property
    def vocabulary_size(self) -> int:
        """V, with the special tokens."""
        return int(self._embedding.weight.shape[0])

    @cached_property
    def calibrations(self) -> Calibrations:
        """The calibrations in its folder; none if it was built in memory."""
        if self.folder is None:
            return Calibrations(self.fingerprint)
        return load_calibrations(self.folder, self.fingerprint)

    @cached_property
    def verifier(self) -> "Verifier | None":
        """What scores its trajectories for the vote `verifier`; None if it has none."""
        from latent.verifier import load_verifier

        place = None if self.folder is None else find_verifier(self.folder, self.fingerprint)
        return None if place is None else load_verifier(self, place)

    def verifier_for(self, vote: VoteKind) -> "Verifier | None":
        """The verifier if this vote needs it, else None; refuses a vote that it can't take part in."""
        verifier = self.verifier if vote == "verifier" else None
        self.format.check_vote(vote, self.name, has_verifier=verifier is not None)
        return verifier

    @cached_property
    def regime_thresholds(self) -> Thresholds:
        """What the regimes of its samplers are told apart by; the general ones if none were measured."""
        if self.folder is None:
            return Thresholds()
        return load_thresholds(self.folder, self.fingerprint)

    @cached_property
    def reproducibility(self) -> "Reproducibility":
        """What one seed promises on this machine; measured when first asked for, and cached."""
        from latent.reproducibility import known_reproducibility

        return known_reproducibility(self)

    @cached_property
    def calculator(self) -> Calculator:
        """What computes the results of equations, if `reasoner.json` asks for it."""
        return Calculator(self.tokenizer, self.vocabulary_size, self.device)

    @property
    def position_limit(self) -> int | None:
        """The context window."""
        return getattr(self._model.config, "max_position_embeddings", None)

    def encode(self, question: str) -> tuple[int, ...]:
        """Prompt ids of a question, up to and with <start_latent>."""
        return self.encoder.question(question)

    def encode_answer(self, answer: Decimal) -> tuple[int, ...]:
        """Tokens of an answer that should follow the answer prefix, through end-of-text."""
        return self.encoder.answer(answer)

    def check_sampler(self, spec: SamplerSpec) -> None:
        """Refuse a sampler that this kind of reasoner can't run."""
        self.format.check_sampler(spec, self.name)

    def sampler(self, text: str | None = None) -> "Sampler":
        """Load the sampler of a spec such as `gts` or `dropout:0.1`; None is the reasoner's default."""
        from latent.samplers import LearnedSampler
        from latent.store import load_sampler

        spec = SamplerSpec.parse(text or self.format.default_sampler)
        if spec.kind != "gts":
            return load_sampler(self, spec)
        # Heads are kept by name. Scales are not: requests may give any number of them.
        name = spec.name or DEFAULT_SAMPLER
        if name not in self._learned:
            self._learned[name] = load_sampler(self, spec)
        kept = self._learned[name]
        assert isinstance(kept, LearnedSampler)
        return kept if kept.spec == spec else LearnedSampler(spec, kept.heads, kept.schedule)

    def solve(
        self,
        question: str,
        *,
        budget: int = 8,
        sampler: str | None = None,
        seed: int | None = None,
        vote: str | None = None,
        include_deterministic: bool = False,
        stop: "Stop | None" = None,
        abstain_below: float | None = None,
    ) -> "Solved":
        """Draw `budget` trajectories of a question and let them vote.

        A budget of 1 is the deterministic trajectory. Without a sampler or a vote: the reasoner's
        default. Without a seed one is drawn, and reported. `vote` is majority, confidence, best,
        centroid, checked, likelihood or verifier; `include_deterministic` makes the unperturbed
        trajectory one of the budget. `stop` may end it early; with a calibrated confidence below
        `abstain_below` no answer is given.
        """
        from latent.solve import solve

        return solve(
            self,
            question,
            sampler,
            budget=budget,
            seed=seed,
            vote=vote,
            include_deterministic=include_deterministic,
            stop=stop,
            abstain_below=abstain_below,
        )

    @torch.no_grad()
    def prefill(self, prompts: Sequence[Sequence[int]]) -> list[Prefix]:
        """Run prompts of one length bucket through the decoder, each once."""
        bucket = bucket_of(len(prompts[0]))
        if any(bucket_of(len(prompt)) != bucket for prompt in prompts):
            raise ValueError("prompts of one prefill must share a length bucket")
        ids = torch.zeros(len(prompts), bucket, dtype=torch.long)
        for row, prompt in enumerate(prompts):
            ids[row, : len(prompt)] = torch.tensor(prompt)
        positions = torch.arange(bucket).clamp(max=(self.position_limit or bucket) - 1)[None]
        cache = PromptCache()
        hidden = self._decoder(
            inputs_embeds=self._embedding(ids.to(self.device)),
            position_ids=positions.to(self.device),
            past_key_values=cache,
            use_cache=True,
        ).last_hidden_state  # (R, P, D)
        kv = torch.stack(cache.kv)  # (layers, 2, R, heads, P, d)
        return [
            Prefix(kv[:, :, row].contiguous(), len(prompt), hidden[row, len(prompt) - 1].clone())
            for row, prompt in enumerate(prompts)
        ]

    @torch.no_grad()
    def feedback(self, hidden: torch.Tensor, masks: DropoutMasks | None = None) -> torch.Tensor:
        """Compute the contexts f(h): (T, D)."""
        if masks is not None and masks.has(Site.PROJECTION):
            hidden = hidden * masks.channels(Site.PROJECTION)
        return torch.as_tensor(self._feedback(hidden))

    @torch.no_grad()
    def step(
        self,
        inputs: torch.Tensor,
        cache: LaneCache | StaticLanes,
        slot: int | torch.Tensor,
        masks: DropoutMasks | None = None,
    ) -> torch.Tensor:
        """Feed an input per lane (T, D) at a suffix slot; return states after the final norm, (T, D)."""
        if isinstance(cache, StaticLanes):
            assert masks is None
            assert isinstance(slot, int)
            return cache.step(inputs, slot)
        cache.masks = masks
        with self._dropout.applying(masks):
            return self.decode_at(inputs, cache.at(slot), cache)

    def decode_at(
        self, inputs: torch.Tensor, positions: torch.Tensor, cache: Cache
    ) -> torch.Tensor:
        """Run inputs (T, D) at positions (1, T) through the decoder, on a cache of lanes: (T, D)."""
        output = self._decoder(
            inputs_embeds=inputs[None],
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
        )
        return torch.as_tensor(output.last_hidden_state[0])

    @torch.no_grad()
    def embed(self, ids: torch.Tensor) -> torch.Tensor:
        """Look tokens up: (T,) → (T, D)."""
        return torch.as_tensor(self._embedding(ids))

    @torch.no_grad()
    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Run the vocabulary head: (T, D) → (T, V); suppressed tokens get −inf."""
        logits = torch.as_tensor(self._head(hidden)).to(self.compute_dtype)
        if self.format.suppressed_ids:
            logits[:, list(self.format.suppressed_ids)] = -torch.inf
        return logits


def bucket_of(length: int) -> int:
    """Length of a prompt after padding to a multiple of `BUCKET`."""
    return -(-length // BUCKET) * BUCKET


def _fuse_gelu(model: nn.Module) -> None:
    """Use PyTorch's one-pass tanh GELU where transformers composes the same function of eight."""
    for module in model.modules():
        for name, child in module.named_children():
            if type(child).__name__ == "NewGELUActivation":
                setattr(module, name, nn.GELU(approximate="tanh"))
