"""A panel in this process: loads its reasoners, and solves a question with all of them."""

import secrets
import time
from collections.abc import Sequence
from pathlib import Path

from latent.device import resolve_device
from latent.errors import NotFoundError
from latent.lanes import Prefix
from latent.panel import Panel, Place, as_cast, check_panel_vote, panel_tally
from latent.panel_file import calibrated_panel, read_panel
from latent.reasoner import Reasoner
from latent.rollout import Ask, rollout
from latent.samplers import Sampler
from latent.solved import EndedBy, MemberWork, Solved
from latent.stopping import Stop, check_stop, checkpoints
from latent.store import load_reasoner
from latent.trajectory import Timing, Trajectory
from latent.votes import parse_vote
from latent.zoo import embedded_panels, find_panel

__all__ = ["ReasonerPanel", "load_panel_files"]


class ReasonerPanel:
    """A panel and the reasoners of its members, in order."""

    def __init__(self, panel: Panel, reasoners: Sequence[Reasoner]) -> None:
        self.panel, self.reasoners = panel, tuple(reasoners)
        self.samplers: tuple[Sampler, ...] = tuple(
            reasoner.sampler(str(member.sampler))
            for member, reasoner in zip(panel.members, reasoners, strict=True)
        )

    @property
    def name(self) -> str:
        """The panel's name."""
        return self.panel.name

    def solve(
        self,
        question: str,
        *,
        budget: int = 8,
        seed: int | None = None,
        vote: str | None = None,
        stop: Stop | None = None,
        abstain_below: float | None = None,
    ) -> Solved:
        """Draw `budget` trajectories, divided among the members, and let them vote.

        A member's first trajectory is its deterministic one; the others are the same as it would draw
        alone with this seed. A split that is not fixed, or `stop`, may draw fewer of them. With a
        calibrated confidence below `abstain_below` no answer is given.
        """
        panel, kind = self.panel, parse_vote(vote or "majority")
        check_panel_vote(kind)
        for reasoner in self.reasoners:
            reasoner.format.check_vote(kind, reasoner.name)
        is_calibrated = panel.calibration(kind) is not None
        check_stop(panel.name, kind, stop, abstain_below, is_calibrated=is_calibrated)
        familiarity = panel.familiarity(question)
        places = panel.places(budget)
        stages, looks = panel.stages(places), set(checkpoints(budget)) if stop else set()
        seed = secrets.randbelow(2**32) if seed is None else seed
        started = time.perf_counter()
        runs = [
            _MemberRun(label, reasoner, sampler, question, seed)
            for label, reasoner, sampler in zip(
                panel.labels, self.reasoners, self.samplers, strict=True
            )
        ]
        cast: list[Trajectory] = []
        ended_by: EndedBy = "budget"
        for end in sorted({*stages, *(look for look in looks if look < len(places))}):
            for number, run in enumerate(runs):
                run.draw([place for place in places[len(cast) : end] if place.member == number])
            cast += [
                as_cast(runs[place.member].drawn[place.index], position, panel.labels[place.member])
                for position, place in enumerate(places[len(cast) : end], start=len(cast))
            ]
            voted = panel_tally(panel, cast, kind, familiarity)
            if end == len(places):
                break
            if end in stages and panel.is_sure(voted):
                ended_by = "certainty"
                break
            if stop and end in looks and stop.is_reached(voted, None, familiarity):
                ended_by = stop.kind
                break
        works = tuple(run.work() for run in runs)
        return Solved(
            model=panel.name,
            sampler=",".join(panel.labels),
            seed=seed,
            budget=budget,
            prompt_tokens=sum(work.prompt_tokens for work in works),
            thoughts=sum(work.thoughts for work in works),
            answer_tokens=sum(work.answer_tokens for work in works),
            trajectories=cast,
            tally=voted,
            timing=sum((work.timing for work in works), Timing()),
            total_seconds=time.perf_counter() - started,
            ended_by=ended_by,
            familiarity=familiarity,
            abstain_below=abstain_below,
            members=works,
        )


class _MemberRun:
    """One member's trajectories of one question."""

    def __init__(
        self, label: str, reasoner: Reasoner, sampler: Sampler, question: str, seed: int
    ) -> None:
        self._label, self._reasoner, self._sampler = label, reasoner, sampler
        self._prompt, self._seed = reasoner.encode(question), seed
        self._prefix: Prefix | None = None
        self._timing = Timing()
        self.drawn: dict[int, Trajectory] = {}

    def draw(self, places: Sequence[Place]) -> None:
        """Draw the trajectories of these places; the prompt is prefilled once."""
        if not places:
            return
        indices = tuple(place.index for place in places)
        ask = Ask(self._prompt, self._seed, indices, prefix=self._prefix)
        done = rollout(self._reasoner, self._sampler, [ask])[0]
        self._prefix = done.prefix
        self._timing += done.timing
        self.drawn |= {trajectory.index: trajectory for trajectory in done.trajectories}

    def work(self) -> MemberWork:
        """What it did."""
        return MemberWork(
            member=self._label,
            trajectories=len(self.drawn),
            prompt_tokens=len(self._prompt) if self.drawn else 0,
            thoughts=self._reasoner.format.thoughts * len(self.drawn),
            answer_tokens=sum(len(each.tokens) for each in self.drawn.values()),
            timing=self._timing,
        )


def load_panel_files(
    name_or_path: str, *, device: str, dtype: str, is_calibrated: bool
) -> ReasonerPanel:
    """Load a panel's reasoners, each once, and its calibrations; see `latent.load_panel`."""
    folder = find_panel(name_or_path)
    if folder is None:
        known = ", ".join(embedded_panels())
        raise NotFoundError(
            f"{name_or_path!r} is no panel; give a folder with panel.json or one of: {known}",
            param="model",
        )
    files, where = read_panel(folder), resolve_device(device)
    loaded: dict[Path, Reasoner] = {}
    for path in files.reasoners:
        if path not in loaded:
            loaded[path] = load_reasoner(path, device=str(where), dtype=dtype)
    reasoners = [loaded[path] for path in files.reasoners]
    panel = files.panel
    if is_calibrated:
        panel = calibrated_panel(files, [reasoner.fingerprint for reasoner in reasoners])
    return ReasonerPanel(panel, reasoners)
