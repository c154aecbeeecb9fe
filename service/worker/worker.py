"""The worker process, one per device: loads the models, runs the rounds that it is sent, reports."""

import contextlib
import ctypes
import logging
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import torch

from latent.answers import parse_answer
from latent.compiling import compile_steps, lane_buckets
from latent.device import is_out_of_memory, resolve_device
from latent.errors import GtsError, InputError
from latent.exploration import heads_of
from latent.folders import sampler_folders, sampler_spec
from latent.reasoner import Reasoner
from latent.rollout import Ask, Rollout, rollout
from latent.samplers import LearnedSampler, Sampler
from latent.store import load_reasoner
from latent.trajectory import DETERMINISTIC, Trajectory
from service.engine.messages import (
    Failure,
    LaneReport,
    ModelPlace,
    OutOfMemory,
    Ready,
    RoundReport,
    RoundTask,
    Task,
    WorkerConfig,
)
from service.logs import set_up_logging
from service.worker.diagnosis import diagnose
from service.worker.prefix_cache import PrefixCache
from service.worker.tracing import trace

__all__ = ["Worker", "main"]

_log = logging.getLogger("gts.worker")

Asked = Sequence[tuple[Task, Ask]]
Results = dict[str, LaneReport | Failure]  # by job id

_WARM_QUESTION = "1 + 1 ="
_SNR_LANES, _SNR_SECONDS = 16, 1.0  # SNR is measured on so many lanes, and so often at most


def main(connection: Connection, config: WorkerConfig) -> None:
    """Run rounds until the connection closes. The API process handles signals, and ends this one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    set_up_logging(config.log_format)
    with contextlib.suppress(EOFError, ConnectionError):  # the API process is gone
        try:
            worker = Worker(config)
            worker.warm_up()
            ready = worker.ready()
        except GtsError as error:
            connection.send(Ready(os.getpid(), config.device, failure=str(error)))
            return
        _return_memory()
        connection.send(ready)
        while True:
            connection.send(worker.run(connection.recv()))


def _return_memory() -> None:
    """Give what loading left in the C library's heap back to the system, with glibc."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


class Worker:
    """The models on one device, and the rounds that run on them."""

    def __init__(self, config: WorkerConfig) -> None:
        torch.set_num_threads(config.threads)
        self._device = resolve_device(config.device)
        self._dtype = config.dtype
        self._models = {place.name: self._load(place) for place in config.models}
        self._prefixes = PrefixCache(config.prefix_cache_bytes)
        self._compiled_lanes = config.compiled_lanes
        self._snr_times: dict[str, float] = {}  # by model: when it was last measured

    def warm_up(self) -> None:
        """Load every sampler and run each model once, so that errors and slow first passes come now."""
        for reasoner in self._models.values():
            _ = reasoner.regime_thresholds, reasoner.verifier  # damaged files are refused now
            for name in sampler_folders(reasoner.folder) if reasoner.folder else ():
                reasoner.sampler(sampler_spec(name))
            ask = Ask(reasoner.encode(_WARM_QUESTION), 0, (DETERMINISTIC,))
            if self._compiled_lanes:
                lanes = lane_buckets(self._compiled_lanes)
                compile_steps(reasoner, lanes, report=partial(_log_compiled, reasoner.name))
            rollout(reasoner, reasoner.sampler("deterministic"), [ask])

    def ready(self) -> Ready:
        """What the API process is told of a worker that is warm."""
        promises = {name: reasoner.reproducibility for name, reasoner in self._models.items()}
        dtypes = {name: reasoner.precision for name, reasoner in self._models.items()}
        for name, promise in promises.items():
            about = {"model": name, "dtype": dtypes[name]}
            _log.info("reproducible: %s; %s", promise.kind, promise.reason, extra=about)
        kinds = {name: promise.kind for name, promise in promises.items()}
        return Ready(os.getpid(), str(self._device), reproducible=kinds, dtypes=dtypes)

    def run(self, task: RoundTask) -> RoundReport | OutOfMemory:
        """Run a round; if it does not fit the memory, free what can be freed for another try."""
        try:
            return self._run(task)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        # Here and not in the handler, since the exception holds the failed round's tensors.
        self._prefixes.clear()
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
        return OutOfMemory(task.round_id)

    def _run(self, task: RoundTask) -> RoundReport:
        """Encode the questions, roll them out, report. A bad question fails alone."""
        started = time.perf_counter()
        cache = self._prefixes
        cache.hits = cache.misses = 0
        kind, model, spec = task.group
        results: Results = {}
        try:
            reasoner, sampler = self._models[model], self._models[model].sampler(spec)
            asked = []
            for item in task.tasks:
                try:
                    asked.append((item, self._ask(reasoner, item)))
                except Exception as error:
                    results[item.job_id] = _failure(error, "this question could not be read")
            work = {"solve": self._solve, "diagnose": self._diagnose, "trace": self._trace}[kind]
            results |= _isolated(partial(work, reasoner, sampler, task.lane_limit), asked)
        except GtsError as error:
            failure = _failure(error, "the round failed")
            results = {item.job_id: failure for item in task.tasks}
        seconds = time.perf_counter() - started
        return RoundReport(task.round_id, results, seconds, cache.hits, cache.misses)

    def _solve(
        self, reasoner: Reasoner, sampler: Sampler, lane_limit: int, asked: Asked
    ) -> Results:
        keeps = isinstance(sampler, LearnedSampler) and self._is_snr_due(reasoner.name)
        asks = [ask for _, ask in asked]
        verifier = reasoner.verifier if any(item.wants_score for item, _ in asked) else None
        done = rollout(
            reasoner,
            sampler,
            asks,
            keep_thoughts=keeps,
            verifier=verifier,
            lane_limit=lane_limit,
        )
        reports: Results = {}
        for (item, ask), result in zip(asked, done, strict=True):
            self._prefixes.put(reasoner, ask.prompt, result.prefix)
            # A gauge of the round, which one question tells well enough.
            snr = _snr(sampler, result) if keeps and not reports else None
            reports[item.job_id] = _report(reasoner, item, result, snr=snr)
        return reports

    def _is_snr_due(self, model: str) -> bool:
        """Whether a model's SNR is to be measured again; it is but a gauge."""
        now = time.monotonic()
        is_due = now - self._snr_times.get(model, -_SNR_SECONDS) >= _SNR_SECONDS
        if is_due:
            self._snr_times[model] = now
        return is_due

    def _diagnose(
        self, reasoner: Reasoner, sampler: Sampler, lane_limit: int, asked: Asked
    ) -> Results:
        reports: Results = {}
        for item, ask in asked:
            truth = None if item.answer is None else parse_answer(item.answer)
            done, measures = diagnose(reasoner, sampler, ask, truth, lane_limit)
            self._prefixes.put(reasoner, ask.prompt, done.prefix)
            reports[item.job_id] = _report(reasoner, item, done, findings=measures)
        return reports

    def _trace(
        self, reasoner: Reasoner, sampler: Sampler, lane_limit: int, asked: Asked
    ) -> Results:
        reports: Results = {}
        for item, ask in asked:
            done, views = trace(reasoner, sampler, ask, item.views, lane_limit)
            reports[item.job_id] = _report(reasoner, item, done, findings=views)
        return reports

    def _ask(self, reasoner: Reasoner, item: Task) -> Ask:
        prompt = reasoner.encode(item.question)
        target = None
        if item.answer is not None:
            truth = parse_answer(item.answer)
            if truth is None:
                raise InputError(f"answer {item.answer!r} has no number in it", param="answer")
            target = reasoner.encode_answer(truth)
        prefix = self._prefixes.get(reasoner, prompt)
        return Ask(prompt, item.seed, item.indices, target=target, prefix=prefix)

    def _load(self, place: ModelPlace) -> Reasoner:
        return load_reasoner(
            place.folder,
            name=place.name,
            device=str(self._device),
            dtype=self._dtype,
            known_fingerprint=place.fingerprint,
        )


def _log_compiled(model: str, lanes: int, prompt: int, seconds: float) -> None:
    facts = {"model": model, "lanes": lanes, "prompt_tokens": prompt, "seconds": round(seconds, 1)}
    _log.info("compiled a step", extra=facts)


def _report(reasoner: Reasoner, item: Task, result: Rollout, **more: Any) -> LaneReport:
    """Report a rollout without what the API process does not use: mostly tokens and thoughts."""

    def sent(trajectory: Trajectory) -> Trajectory:
        changed: dict[str, Any] = {} if item.wants_thoughts else {"final_thought": None}
        if not item.wants_score:  # another question of the round wanted scores
            changed["score"] = None
        if item.wants_tokens:
            texts = (str(reasoner.tokenizer.decode([token])) for token in trajectory.tokens)
            return replace(trajectory, token_texts=tuple(texts), **changed)
        return replace(trajectory, tokens=(), token_logprobs=(), **changed)

    return LaneReport(
        trajectories=tuple(map(sent, result.trajectories)),
        answer_tokens=tuple(len(each.tokens) for each in result.trajectories),
        prompt_tokens=result.prefix.length,
        timing=result.timing,
        **more,
    )


def _snr(sampler: Sampler, result: Rollout) -> tuple[float, ...] | None:
    """SNR per thought, measured on a few lanes only: the heads take time."""
    contexts = None if result.contexts is None else result.contexts[:_SNR_LANES]
    indices = [each.index for each in result.trajectories[:_SNR_LANES]]
    heads = heads_of(sampler, contexts, indices)
    return None if heads is None else tuple(heads.snr)


def _isolated(work: Callable[[Asked], Results], asked: Asked) -> Results:
    """Run all together; if that raises, each by itself, so that only the ones at fault fail."""
    try:
        return work(asked) if asked else {}
    except Exception as error:
        failure = _failure(error, "the rollout failed on this question")
    if len(asked) == 1:
        return {asked[0][0].job_id: failure}
    results: Results = {}
    for one in asked:
        results |= _isolated(work, [one])
    return results


def _failure(error: Exception, message: str) -> Failure:
    """Tell the user of an error in the input; others go into the log, and the user gets `message`.

    Raises what concerns the whole device: out of memory, and errors after which only a new process
    can use it.
    """
    if is_out_of_memory(error) or isinstance(error, torch.AcceleratorError):
        raise error
    if isinstance(error, InputError):
        return Failure(str(error), error.param, is_users=True)
    if isinstance(error, GtsError):
        _log.error("a round failed: %s", error)
        return Failure("the model or sampler could not be used")
    _log.error(message, exc_info=error)
    return Failure(message)
