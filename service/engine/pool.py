"""The workers, one per device: started, given rounds while they are free, replaced when they die.

Knows rounds and processes; what the lanes are for is the engine's business.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, Protocol

from service.engine.messages import (
    Failure,
    OutOfMemory,
    Ready,
    RoundReport,
    RoundTask,
    WorkerConfig,
)
from service.engine.process import WorkerMain, WorkerProcess
from service.engine.scheduler import BLOCK, Group, Round
from service.errors import NotReadyError

__all__ = ["Dispatcher", "Fleet"]

_log = logging.getLogger("gts.fleet")

_RESTART_SECONDS = (0.0, 0.5, 1.0, 2.0, 5.0)
_FIRST_LANES = 2 * BLOCK  # of a group whose speed nobody knows yet
_UNKNOWN = 0.01  # seconds per lane of a group that has not run yet
_HOPELESS_STARTS, _HOPELESS_SECONDS = 3, 60.0  # in a row, and with no worker up for so long
_HANG_FACTOR = 20  # a round that takes so many times its estimate does not come back
_SPEED_MEMORY = 0.8  # of the moving average of seconds per lane
_SPEEDS_KEPT = 64  # specs are the users' to invent


class Dispatcher(Protocol):
    """Who the fleet works for."""

    def next_round(self, lane_limit: Callable[[Group], int]) -> Round | None:
        """Give the next round, or None."""

    def task_of(self, round_id: int, round: Round, lane_limit: int) -> RoundTask:
        """Give what a worker must know to run a round."""

    def on_report(self, round: Round, report: RoundReport) -> None:
        """Take the results of a round."""

    def on_out_of_memory(self, round: Round, tried: int) -> None:
        """Take back a round that did not fit, with this many lanes at once."""

    def on_lost(self, round: Round | None) -> None:
        """Take back the round that was running when a worker died."""

    def on_stuck(self) -> None:
        """Give up on what waits: no worker can be started."""


@dataclass
class _Device:
    """One worker's place: the process that fills it now, and the round it runs."""

    config: WorkerConfig
    lane_limit: int
    process: WorkerProcess | None = None
    is_ready: bool = False
    deaths_in_a_row: int = 0
    failed_starts: int = 0
    round_id: int = -1
    running: Round | None = None
    alarm: asyncio.TimerHandle | None = None  # rings when that round should long have been over


class Fleet:
    """All devices. Everything happens on the event loop."""

    def __init__(
        self,
        configs: list[WorkerConfig],
        lane_limit: int,
        round_seconds: float,
        hang_seconds: float,
        main: WorkerMain,
        dispatcher: Dispatcher,
    ) -> None:
        self._devices = [_Device(config, lane_limit) for config in configs]
        self._lane_limit = lane_limit
        self._round_seconds = round_seconds
        self._hang_seconds = hang_seconds
        self._main = main
        self._dispatcher = dispatcher
        self._round_ids = count()
        self._seconds_per_lane: dict[Group, float] = {}
        self._started: asyncio.Future[str | None] | None = None
        self._is_closed = False
        self._last_ready = time.monotonic()

    @property
    def is_ready(self) -> bool:
        """Whether any worker is up and warm."""
        return any(device.is_ready for device in self._devices)

    @property
    def running_lanes(self) -> int:
        """Lanes on the devices now."""
        return sum(device.running.lanes for device in self._devices if device.running is not None)

    async def start(self) -> None:
        """Start the workers, once; return when each is warm, or raise what the first of them says."""
        if self._started is not None:
            return
        self._started = asyncio.get_running_loop().create_future()
        for device in self._devices:
            self._spawn(device)
        failure = await self._started
        if failure is not None:
            self.close()
            raise NotReadyError(failure)

    def close(self) -> None:
        """Stop the workers for good, and whoever waits for their start."""
        self._is_closed = True
        if self._started is not None and not self._started.done():
            self._started.set_result("stopped before the workers were ready")
        for device in self._devices:
            if device.process is not None:
                device.process.stop()

    def dispatch(self) -> None:
        """Give every free device the next round."""
        for device in self._devices:
            if not device.is_ready or device.running is not None or device.process is None:
                continue
            round = self._dispatcher.next_round(partial(self._round_size, device))
            if round is not None:
                device.round_id, device.running = next(self._round_ids), round
                at_once = _lanes_at_once(device, round)
                device.process.send(self._dispatcher.task_of(device.round_id, round, at_once))
                device.alarm = asyncio.get_running_loop().call_later(
                    self._patience(round), self._on_hang, device, device.process
                )

    def seconds_for(self, lanes: Mapping[Group, int]) -> float:
        """Estimate how long waiting lanes take, each group at its own speed."""
        seconds = (n * self._seconds_per_lane.get(group, _UNKNOWN) for group, n in lanes.items())
        return sum(seconds) / len(self._devices)

    def _round_size(self, device: _Device, group: Group) -> int:
        """Bound a round by the device's lanes and by the time it may take: it is not interrupted."""
        speed = self._seconds_per_lane.get(group)
        if speed is None:
            return min(device.lane_limit, _FIRST_LANES)
        in_time = int(self._round_seconds / speed) // BLOCK * BLOCK
        return max(BLOCK, min(device.lane_limit, in_time))

    def _patience(self, round: Round) -> float:
        """Give the seconds after which a round is taken to hang."""
        expected = self._seconds_per_lane.get(round.group, 0.0) * round.lanes
        return max(self._hang_seconds, _HANG_FACTOR * expected)

    def _spawn(self, device: _Device) -> None:
        if self._is_closed:
            return
        try:
            device.process = WorkerProcess(
                device.config,
                self._main,
                asyncio.get_running_loop(),
                partial(self._on_message, device),
                partial(self._on_death, device),
            )
        except OSError as error:  # no more processes, files or memory to be had: for now
            _log.error("no worker can be started: %s", error)
            self._on_down(device)

    def _on_message(self, device: _Device, process: WorkerProcess, message: Any) -> None:
        if process is not device.process:
            return  # the last words of one that has been replaced
        if isinstance(message, Ready):
            self._on_ready(device, message)
        elif (round := device.running) is not None and message.round_id == device.round_id:
            _free(device)
            if isinstance(message, OutOfMemory):
                self._on_out_of_memory(device, round)
            else:
                device.deaths_in_a_row = 0
                device.lane_limit = min(device.lane_limit + BLOCK, self._lane_limit)
                if not any(isinstance(each, Failure) for each in message.results.values()):
                    self._learn_speed(round, message.seconds)  # of lanes that all ran
                self._dispatcher.on_report(round, message)
        self.dispatch()

    def _on_ready(self, device: _Device, message: Ready) -> None:
        device.is_ready = message.failure is None
        if message.failure is None:
            _log.info("worker ready", extra={"pid": message.pid, "device": message.device})
        elif self._started is None or self._started.done():  # else `start` raises it
            _log.error("worker cannot start: %s", message.failure)
        if self._started is not None and not self._started.done():
            is_complete = all(each.is_ready for each in self._devices)
            if message.failure is not None or is_complete:
                self._started.set_result(message.failure)

    def _on_out_of_memory(self, device: _Device, round: Round) -> None:
        """Halve what runs at once; good rounds raise it again, little by little."""
        tried = min(_lanes_at_once(device, round), round.lanes)
        self._dispatcher.on_out_of_memory(round, tried)
        device.lane_limit = max(BLOCK, tried // 2)
        _log.warning("out of memory; halved the lanes", extra={"lanes": device.lane_limit})

    def _on_hang(self, device: _Device, process: WorkerProcess) -> None:
        """Give a worker up that does not come back from its round, even if it cannot be killed."""
        if process is device.process and not self._is_closed:
            _log.error("worker hangs", extra={"pid": process.pid, "device": device.config.device})
            process.stop()
            self._on_down(device)

    def _on_death(self, device: _Device, process: WorkerProcess) -> None:
        if process is not device.process or self._is_closed:
            return
        _log.error("worker died", extra={"pid": process.pid, "device": device.config.device})
        self._on_down(device)

    def _on_down(self, device: _Device) -> None:
        """Give a lost round back, and try again to fill the place."""
        device.process = None
        was_ready, device.is_ready = device.is_ready, False
        device.failed_starts = 0 if was_ready else device.failed_starts + 1
        if was_ready or self.is_ready:
            self._last_ready = time.monotonic()
        if self._started is not None and not self._started.done():
            self._started.set_result("a worker died while it was starting; see the log")
            return
        lost = device.running
        _free(device)
        self._dispatcher.on_lost(lost)
        down = time.monotonic() - self._last_ready
        if device.failed_starts >= _HOPELESS_STARTS and down >= _HOPELESS_SECONDS:
            self._dispatcher.on_stuck()
        wait = _RESTART_SECONDS[min(device.deaths_in_a_row, len(_RESTART_SECONDS) - 1)]
        device.deaths_in_a_row += 1
        asyncio.get_running_loop().call_later(wait, self._spawn, device)
        self.dispatch()

    def _learn_speed(self, round: Round, seconds: float) -> None:
        # A handful of lanes takes about as long as a block: they say nothing about many.
        measured = seconds / max(round.lanes, BLOCK)
        before = self._seconds_per_lane.pop(round.group, measured)
        mixed = _SPEED_MEMORY * before + (1 - _SPEED_MEMORY) * measured
        self._seconds_per_lane[round.group] = mixed
        if len(self._seconds_per_lane) > _SPEEDS_KEPT:
            del self._seconds_per_lane[next(iter(self._seconds_per_lane))]


def _free(device: _Device) -> None:
    """Take a device's round off it."""
    device.running = None
    if device.alarm is not None:
        device.alarm.cancel()


def _lanes_at_once(device: _Device, round: Round) -> int:
    return device.lane_limit if round.most is None else min(device.lane_limit, round.most)
