"""The naive oracle: one trajectory at a time, the whole sequence at every step, no cache, no sharing."""

import copy
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from transformers import AttentionInterface, AutoModelForCausalLM

from latent.calculator import Registers
from latent.dropout import find_layers
from latent.noise import LaneNoise, Site
from latent.reasoner import Reasoner
from latent.samplers import Sampler


@dataclass
class OracleTrajectory:
    """What the oracle found."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    contexts: list[torch.Tensor] = field(default_factory=list)
    perturbations: list[torch.Tensor] = field(default_factory=list)
    answer_start: int | None = None
    chain: float = 0.0  # log-probability of its text, or of its thoughts read as signs


class Oracle:
    """Runs single trajectories of a reasoner's weights through transformers' own decoder code."""

    def __init__(self, reasoner: Reasoner) -> None:
        self.reasoner = reasoner
        source = reasoner._model
        self.model = AutoModelForCausalLM.from_config(
            copy.deepcopy(source.config), attn_implementation="gts_oracle", dtype=source.dtype
        ).eval()
        self.model.load_state_dict(source.state_dict())
        self.inputs: list[torch.Tensor] = []
        self.masks: list[tuple[int, LaneNoise] | None] = []
        self.dropout, self.sites = 0.0, frozenset[str]()
        layers = find_layers(self.model.base_model, source.config.num_hidden_layers)
        layers[0].register_forward_pre_hook(self._embedding)
        for number, layer in enumerate(layers):
            attention = layer.attn if hasattr(layer, "attn") else layer.self_attn
            attention.oracle = self
            attention.register_forward_hook(self._residual(Site.ATTENTION_RESIDUAL, number))
            layer.mlp.register_forward_hook(self._residual(Site.MLP_RESIDUAL, number))

    @torch.no_grad()
    def probe(
        self, question: str, sampler: Sampler, seed: int, index: int, target: tuple[int, ...]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Force prefix and target behind a trajectory's reasoning; give the log-probabilities."""
        format = self.reasoner.format
        found = self.run(question, sampler, seed, index)
        start, prefix = found.answer_start, format.answer_prefix_ids
        written = len(found.tokens) - (found.tokens[-1] in format.eos_ids)
        reasoning = (written if start is None else start - len(prefix)) * (not format.is_latent)
        before = len(self.reasoner.encode(question))
        before += format.latent_positions or reasoning
        inputs, self.masks = self.inputs[:before], self.masks[:before]
        while len(inputs) < before:  # the last token of a trajectory was never fed
            inputs.append(self._embed(found.tokens[reasoning - 1]))
            self.masks.append((reasoning - 1, LaneNoise((seed,), (index,))))
        for token in (*prefix, *target[:-1]):
            inputs.append(self._embed(token))
            self.masks.append(None)
        states = self._forward(inputs)[-len(target) :]
        logprobs = self.model.lm_head(states).log_softmax(-1)
        return logprobs[0], logprobs.gather(-1, torch.tensor(target)[:, None])[:, 0]

    @torch.no_grad()
    def run(self, question: str, sampler: Sampler, seed: int, index: int) -> OracleTrajectory:
        """Follow one trajectory to its end."""
        format = self.reasoner.format
        self.dropout = sampler.dropout if index >= 0 else 0.0
        self.sites = frozenset(sampler.spec.sites or self.reasoner.default_dropout_sites)
        noise = LaneNoise((seed,), (index,))
        found = OracleTrajectory()
        inputs = self.inputs = [self._embed(token) for token in self.reasoner.encode(question)]
        self.masks = [None] * len(inputs)
        for k in range(format.thoughts):
            hidden = state = self._forward(inputs)[-1]
            if self.dropout and "projection" in self.sites:
                hidden = hidden * self._keep(noise.uniform(k, Site.PROJECTION, len(hidden))[0, 0])
            context = self.reasoner._feedback(hidden)
            if format.calculator:
                context = self._calculated(context, inputs[len(inputs) - k :])
            epsilon = noise.normal(format.thoughts, len(context))[k, 0].to(context.dtype)
            z = sampler.perturb(context, epsilon) if index >= 0 else torch.zeros_like(context)
            found.contexts.append(context)
            found.perturbations.append(z)
            if format.calculator:
                found.chain += self._likely(context + z, state, inputs[len(inputs) - k :])
            inputs.append(context + z)
            self.masks.append((k, noise))
        if format.is_latent:
            for token in (format.end_id, *format.after_end_ids):
                inputs.append(self._embed(token))
                self.masks.append(None)
        self._generate(found, inputs, sampler, noise, index)
        if not format.is_latent:
            found.chain = sum(found.logprobs[: found.answer_start])
        return found

    def _calculated(self, context: torch.Tensor, before: list[torch.Tensor]) -> torch.Tensor:
        """Read all thoughts from the first; if a result is due, give the embedding of its sign."""
        calculator = self.reasoner.calculator
        state = self._state(before)
        chosen = self._nearest(context)
        corrected = calculator.correct(state, chosen)
        is_kept = not calculator.due(state)[0].item() and corrected.item() == chosen.item()
        return context if is_kept else self._embed(int(corrected))

    def _state(self, thoughts: list[torch.Tensor]) -> Registers:
        state = Registers.idle(1, self.model.device)
        for thought in thoughts:
            state = self.reasoner.calculator.read(state, self._nearest(thought))
        return state

    def _likely(
        self, thought: torch.Tensor, hidden: torch.Tensor, before: list[torch.Tensor]
    ) -> float:
        """Log-probability of the sign that a thought reads as; 0 where a result is due."""
        calculator = self.reasoner.calculator
        if calculator.due(self._state(before))[0].item():
            return 0.0
        likely = self.model.lm_head(hidden)[calculator.sign_ids].log_softmax(-1)
        return float(likely[calculator.sign_ids == self._nearest(thought)])

    def _nearest(self, thought: torch.Tensor) -> torch.Tensor:
        """The sign whose embedding is nearest: (1,)."""
        ids = self.reasoner.calculator.sign_ids
        return ids[(self._embed(ids) - thought).norm(dim=-1).argmin()][None]

    def _generate(
        self,
        found: OracleTrajectory,
        inputs: list[Any],
        sampler: Sampler,
        noise: LaneNoise,
        index: int,
    ) -> None:
        format, prefix = self.reasoner.format, list(self.reasoner.format.answer_prefix_ids)
        slot = format.latent_positions
        while True:
            logits = self.model.lm_head(self._forward(inputs)[-1])
            logits[list(format.suppressed_ids)] = -torch.inf
            token = int(logits.argmax())
            if sampler.temperature and index >= 0 and found.answer_start is None:
                cumulative = (logits.double() / sampler.temperature).softmax(-1).cumsum(-1)
                drawn = noise.uniform(slot, Site.TOKEN, 1)[0, 0, 0] * cumulative[-1]
                token = int((cumulative < drawn).sum())
            found.tokens.append(token)
            found.logprobs.append(float(logits.log_softmax(-1)[token]))
            if found.answer_start is None and found.tokens[-len(prefix) :] == prefix:
                found.answer_start = len(found.tokens)
            is_end = token in format.eos_ids and not (
                format.ignore_first_eos and len(found.tokens) == 1
            )
            if is_end or self._is_full(found):
                return
            inputs.append(self._embed(token))
            is_dropping = not format.is_latent and found.answer_start is None
            self.masks.append((slot, noise) if is_dropping else None)
            slot += 1

    def _is_full(self, found: OracleTrajectory) -> bool:
        format = self.reasoner.format
        if found.answer_start is None:
            return len(found.tokens) >= format.free_tokens + len(format.answer_prefix_ids)
        return len(found.tokens) - found.answer_start >= format.max_answer_tokens

    def _embed(self, token: int | torch.Tensor | None) -> torch.Tensor:
        return self.model.get_input_embeddings()(torch.as_tensor(token))

    def _forward(self, inputs: list[torch.Tensor]) -> torch.Tensor:
        states = self.model.base_model(inputs_embeds=torch.stack(inputs)[None], use_cache=False)
        return states.last_hidden_state[0]

    def _keep(self, uniform: torch.Tensor) -> torch.Tensor:
        return (uniform >= self.dropout).to(self.model.dtype) / (1 - self.dropout)

    def _channels(self, site: Site, width: int, layer: int) -> torch.Tensor:
        rows = [
            torch.ones(width, dtype=self.model.dtype)
            if mask is None
            else self._keep(mask[1].uniform(mask[0], site, width, layer=layer)[0, 0])
            for mask in self.masks
        ]
        return torch.stack(rows)

    def _embedding(self, _: nn.Module, args: tuple[Any, ...]) -> Any:
        if not self.dropout or "embedding" not in self.sites:
            return None
        return (args[0] * self._channels(Site.EMBEDDING, args[0].shape[-1], 0), *args[1:])

    def _residual(self, site: Site, layer: int) -> Any:
        def hook(_: nn.Module, __: Any, output: Any) -> Any:
            if not self.dropout or "residual" not in self.sites:
                return None
            first = output[0] if isinstance(output, tuple) else output
            dropped = first * self._channels(site, first.shape[-1], layer)
            return (dropped, *output[1:]) if isinstance(output, tuple) else dropped

        return hook

    def attention_masks(self, layer: int, heads: int) -> torch.Tensor | None:
        """The mask over (head, query, key), by absolute positions."""
        if not self.dropout or "attention" not in self.sites:
            return None
        length = len(self.masks)
        rows = [
            torch.ones(heads, length, dtype=self.model.dtype)
            if mask is None
            else self._keep(
                mask[1].uniform(mask[0], Site.ATTENTION, length, layer=layer, rows=heads)[0]
            )
            for mask in self.masks
        ]
        return torch.stack(rows, dim=1)


def _attention(
    module: nn.Module, query: Any, key: Any, value: Any, mask: Any, scaling: float, **_: Any
) -> tuple[torch.Tensor, None]:
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    length = query.shape[2]
    future = torch.ones(length, length, dtype=torch.bool).triu(1)
    weights = (query @ key.transpose(-1, -2) * scaling).masked_fill(future, -torch.inf).softmax(-1)
    keep = module.oracle.attention_masks(module.layer_idx, query.shape[1])
    if keep is not None:
        weights = weights * keep
    return (weights @ value).transpose(1, 2), None


AttentionInterface.register("gts_oracle", _attention)
