"""The service's Prometheus metrics: base units, and only labels that cannot grow without bound."""

from collections import Counter as Counts
from collections.abc import Callable
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from latent.solved import Solved
from service.engine.messages import LaneReport, RoundReport, RoundTask

if TYPE_CHECKING:
    from service.engine.pool import Pool
    from service.engine.scheduler import Scheduler
    from service.models import Catalog

__all__ = ["Metrics", "kind_of"]

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_COUNTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


class Metrics:
    """One registry per app, so that several can live in one process."""

    def __init__(self, catalog: "Catalog") -> None:
        self.registry = registry = CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, labels, namespace="gts", registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(name, text, labels, namespace="gts", registry=registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(
                name, text, labels, namespace="gts", buckets=buckets, registry=registry
            )

        self.requests = counter("requests", "Requests answered.", "endpoint", "model", "outcome")
        self.request_seconds = histogram(
            "request_seconds", "From arrival to answer.", _SECONDS, "endpoint"
        )
        self.queue_seconds = histogram(
            "queue_seconds", "From arrival to a question's first round.", _SECONDS
        )
        self.inference_seconds = histogram(
            "inference_seconds", "Prefill, thoughts and decoding of a question.", _SECONDS, "model"
        )
        self._waiting_lanes = gauge("waiting_lanes", "Lanes that no round has taken yet.")
        self._waiting_jobs = gauge("waiting_questions", "Questions with waiting lanes.")
        self._running_lanes = gauge("running_lanes", "Lanes on the devices now.")
        self._open_jobs = gauge("open_questions", "Questions taken in and not answered.")
        self._ready = gauge("ready", "1 while requests are taken and run.")
        self.round_lanes = histogram("round_lanes", "Lanes in a round.", _COUNTS)
        self.round_seconds = histogram("round_seconds", "Seconds of a round.", _SECONDS)
        self.trajectories = counter(
            "trajectories", "Trajectories finished: parsed or unparsable.", "sampler", "outcome"
        )
        self.surplus = counter("surplus_trajectories", "Trajectories past an adaptive stop.")
        self.rejected = counter("rejected", "Requests not taken in.", "reason")
        self.cancelled = counter("cancelled", "Questions whose client disconnected.")
        self.partial = counter("partial", "Questions answered at their deadline.")
        self.unreadable = counter("unreadable", "Questions of which no answer could be read.")
        self.abstained = counter("abstained", "Questions not answered, for too little confidence.")
        self.unfamiliar = counter(
            "unfamiliar", "Questions unlike those that the model was calibrated on.", "model"
        )
        self.budget = histogram("budget", "Trajectories asked for, per question.", _COUNTS)
        self.budget_used = histogram("budget_used", "Trajectories used, per question.", _COUNTS)
        self.vote_share = histogram(
            "vote_share", "The winner's share of the vote.", _SHARES, "sampler"
        )
        self.confidence = histogram(
            "winner_confidence", "Mean confidence of the winner's trajectories.", _SHARES, "sampler"
        )
        self.unique = histogram(
            "unique_answers", "Distinct answers of a question.", _COUNTS, "sampler"
        )
        self.snr = gauge(
            "thought_snr", "rms(mean) over rms(std), of a GTS round a second.", "model", "thought"
        )
        self.diagnosed = counter(
            "diagnosed", "Samplers diagnosed, by how they explored.", "sampler", "regime"
        )
        self.cache = counter("prefix_cache", "Prompts looked up in the prefix cache.", "outcome")
        self.restarts = counter("worker_restarts", "Workers that died.")
        self.out_of_memory = counter("out_of_memory", "Rounds that did not fit the device.")
        info = gauge("model_info", "1 for each model served.", "model", "kind", "fingerprint")
        for model in catalog.all():
            info.labels(model.name, model.format.kind, model.fingerprint[:12]).set(1)
            self.unfamiliar.labels(model.name)  # from 0 on, so that the first one is a rise
        for panel in catalog.panels():
            info.labels(panel.name, "panel", panel.fingerprint[:12]).set(1)
            self.unfamiliar.labels(panel.name)

    def watch(self, scheduler: "Scheduler", pool: "Pool", is_ready: Callable[[], bool]) -> None:
        """Read the gauges of the queue and the devices at every scrape."""
        self._waiting_lanes.set_function(lambda: scheduler.waiting_lanes)
        self._waiting_jobs.set_function(lambda: scheduler.waiting_jobs)
        self._running_lanes.set_function(lambda: pool.running_lanes)
        self._open_jobs.set_function(lambda: len(scheduler.questions))
        self._ready.set_function(is_ready)

    def observe_round(self, round: RoundTask, report: RoundReport) -> None:
        """Count a finished round."""
        _, model, sampler = round.group
        self.round_lanes.observe(round.lanes)
        self.round_seconds.observe(report.seconds)
        self.cache.labels("hit").inc(report.cache_hits)
        self.cache.labels("miss").inc(report.cache_misses)
        finished = [each for each in report.results.values() if isinstance(each, LaneReport)]
        outcomes = Counts(
            "unparsable" if trajectory.answer is None else "parsed"
            for result in finished
            for trajectory in result.trajectories
        )
        for outcome, count in outcomes.items():
            self.trajectories.labels(kind_of(sampler), outcome).inc(count)
        for result in finished:
            for thought, value in enumerate(result.snr or (), start=1):
                self.snr.labels(model, str(thought)).set(value)

    def observe_solved(self, solved: Solved) -> None:
        """Count an answered question."""
        kind = kind_of(solved.sampler) if solved.members is None else "panel"
        winner = solved.tally.winner
        self.queue_seconds.observe(solved.queue_seconds)
        timing = solved.timing
        self.inference_seconds.labels(solved.model).observe(
            timing.prefill + timing.thoughts + timing.decode
        )
        self.budget.observe(solved.budget)
        self.budget_used.observe(len(solved.trajectories))
        self.vote_share.labels(kind).observe(winner.share)
        self.confidence.labels(kind).observe(winner.confidence)
        parsed = sum(candidate.answer is not None for candidate in solved.tally.candidates)
        self.unique.labels(kind).observe(parsed)
        if solved.ended_by == "deadline":
            self.partial.inc()
        if solved.stop_reason == "unreadable":
            self.unreadable.inc()
        if solved.is_abstained:
            self.abstained.inc()
        if solved.familiarity is not None:
            self.unfamiliar.labels(solved.model).inc(solved.familiarity.is_unfamiliar)

    def render(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self.registry)


def kind_of(sampler: str) -> str:
    """The kind of a canonical sampler spec: as a label, the whole spec would be unbounded."""
    return sampler.partition(":")[0]
