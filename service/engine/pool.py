"""The workers, one per device: starts them, runs rounds on them, replaces those that die or hang.

A device may have a spare: a second, loaded worker that takes over when the first is lost.

It decides nothing about rounds: it runs what it is given, and reports every outcome as an `Event`.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from service.engine.messages import OutOfMemory, Ready, RoundReport, RoundTask, WorkerConfig
from service.engine.process import WorkerMain, WorkerProcess
from service.errors import NotReadyError

__all__ = ["Event", "Pool"]

_log = logging.getLogger("gts.pool")

_RESTART_SECONDS = (0.0, 0.5, 1.0, 2.0, 5.0)  # before a restart, by deaths in a row
_STUCK_STARTS, _STUCK_SECONDS = 3, 60.0  # failed starts in a row, and with no worker for so long


@dataclass(frozen=True)
class Event:
    """What happened on a device, with the rounds that it ended.

    `Ready`: an idle worker is there. `lost`: the worker is gone, and its rounds with it, first the
    one that it ran; another is being started. `stuck`: starting one has failed too often.
    """

    device: int
    outcome: Ready | RoundReport | OutOfMemory | Literal["lost", "stuck"]
    rounds: tuple[RoundTask, ...] = ()


@dataclass
class _Device:
    """One device: its present worker process, the rounds that it was sent, and its spare."""

    index: int
    config: WorkerConfig
    process: WorkerProcess | None = None
    is_ready: bool = False
    spare: WorkerProcess | None = None
    spare_ready: Ready | None = None  # once the spare has loaded
    spare_alarm: asyncio.TimerHandle | None = None  # of the spare's start
    failed_spares: int = 0  # in a row
    # The one that runs and the one behind it, with the seconds after which they are considered hung.
    rounds: deque[tuple[RoundTask, float]] = field(default_factory=deque)
    alarm: asyncio.TimerHandle | None = None  # of the start or the round that is under way
    deaths_in_a_row: int = 0
    failed_starts: int = 0

    def take_rounds(self) -> tuple[RoundTask, ...]:
        """Make it idle; return what it was sent, the one that ran first."""
        if self.alarm is not None:
            self.alarm.cancel()
        taken = tuple(round for round, _ in self.rounds)
        self.rounds.clear()
        return taken


class Pool:
    """All devices. Everything happens on the event loop, `on_event` included."""

    def __init__(
        self,
        configs: Sequence[WorkerConfig],
        main: WorkerMain,
        start_seconds: float,
        on_event: Callable[[Event], None],
        has_spares: bool | None = False,
    ) -> None:
        """Without workers yet. `has_spares` None: a spare for devices that are CPUs."""
        self._devices = [_Device(index, config) for index, config in enumerate(configs)]
        self._main, self._start_seconds, self._on_event = main, start_seconds, on_event
        self._has_spares = has_spares
        self._started: asyncio.Future[str | None] | None = None  # None or why the start failed
        self._is_closed = False
        self._last_ready = time.monotonic()

    @property
    def is_ready(self) -> bool:
        """Whether any worker is up and warm."""
        return any(device.is_ready for device in self._devices)

    @property
    def running_lanes(self) -> int:
        """Lanes on the devices now."""
        return sum(device.rounds[0][0].lanes for device in self._devices if device.rounds)

    @property
    def idle_devices(self) -> list[int]:
        """Devices whose worker waits for a round."""
        return [each.index for each in self._devices if each.is_ready and not each.rounds]

    def running_round(self, device: int) -> RoundTask | None:
        """The round that a device runs."""
        rounds = self._devices[device].rounds
        return rounds[0][0] if rounds else None

    def is_last(self, device: int, round: RoundTask) -> bool:
        """Whether the device runs this round, and none waits behind it."""
        return [each.round_id for each, _ in self._devices[device].rounds] == [round.round_id]

    async def start(self) -> None:
        """Start the workers, once; return when all are warm, or raise why the first one failed."""
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
        """Stop the workers for good, and a `start` that still waits."""
        self._is_closed = True
        self._end_start("stopped before the workers were ready")
        for device in self._devices:
            for process in (device.process, device.spare):
                if process is not None:
                    process.kill()

    def run(self, device: int, round: RoundTask, hang_seconds: float) -> None:
        """Send a device a round, which runs now or behind the one that runs.

        Its worker is replaced if it takes `hang_seconds`.
        """
        chosen = self._devices[device]
        assert chosen.process is not None
        chosen.rounds.append((round, hang_seconds))
        chosen.process.send(round)
        if len(chosen.rounds) == 1:
            self._set_alarm(chosen, hang_seconds)

    def _spawn(self, device: _Device) -> None:
        if self._is_closed:
            return
        try:
            device.process = self._new_process(device)
        except (
            OSError,
            RuntimeError,
        ) as error:  # out of processes, threads or memory: perhaps for now
            self._on_down(device, f"could not be spawned ({error})")
            return
        self._set_alarm(device, self._start_seconds)

    def _spawn_spare(self, device: _Device) -> None:
        """Start a spare; after too many failures in a row, do without until a worker is replaced."""
        if self._is_closed or device.spare is not None or device.failed_spares >= _STUCK_STARTS:
            return
        try:
            device.spare = self._new_process(device)
        except (OSError, RuntimeError) as error:
            self._on_spare_down(device, f"could not be spawned ({error})")
            return
        device.spare_alarm = asyncio.get_running_loop().call_later(
            self._start_seconds, self._on_spare_hang, device, device.spare
        )

    def _on_spare_hang(self, device: _Device, process: WorkerProcess) -> None:
        if process is device.spare and not self._is_closed:
            process.kill()
            self._on_spare_down(device, f"hung for {self._start_seconds:.0f} s while it loaded")

    def _on_spare_down(self, device: _Device, what: str) -> None:
        _log.error("spare worker %s", what, extra={"device": device.config.device})
        self._take_spare(device)
        device.failed_spares += 1
        asyncio.get_running_loop().call_later(_RESTART_SECONDS[-1], self._spawn_spare, device)

    def _take_spare(self, device: _Device) -> tuple[WorkerProcess | None, Ready | None]:
        """Remove the spare from its place; return it, and what it said if it has loaded."""
        if device.spare_alarm is not None:
            device.spare_alarm.cancel()
        taken = device.spare, device.spare_ready
        device.spare = device.spare_ready = device.spare_alarm = None
        return taken

    def _new_process(self, device: _Device) -> WorkerProcess:
        return WorkerProcess(
            device.config,
            self._main,
            asyncio.get_running_loop(),
            partial(self._on_message, device),
            partial(self._on_death, device),
        )

    def _replace(self, device: _Device) -> None:
        """Put the spare in the lost worker's place, loaded or not; without one, start a worker."""
        process, ready = self._take_spare(device)
        if process is None or self._is_closed:
            self._spawn(device)
            return
        device.process = process
        if ready is not None:
            self._on_ready(device, ready)
        else:
            self._set_alarm(device, self._start_seconds)

    def _set_alarm(self, device: _Device, seconds: float) -> None:
        assert device.process is not None
        device.alarm = asyncio.get_running_loop().call_later(
            seconds, self._on_hang, device, device.process, seconds
        )

    def _on_message(self, device: _Device, process: WorkerProcess, message: Any) -> None:
        if process is device.spare and isinstance(message, Ready):
            self._on_spare_ready(device, message)
            return
        if process is not device.process:
            return  # from a worker that was replaced
        if isinstance(message, Ready):
            self._on_ready(device, message)
        elif device.rounds and message.round_id == device.rounds[0][0].round_id:
            if isinstance(message, RoundReport):
                device.deaths_in_a_row = 0
            if device.alarm is not None:
                device.alarm.cancel()
            ended, _ = device.rounds.popleft()
            if device.rounds:
                self._set_alarm(device, device.rounds[0][1])
            self._on_event(Event(device.index, message, (ended,)))

    def _on_spare_ready(self, device: _Device, message: Ready) -> None:
        if message.failure is not None:  # its death, which follows, is counted
            _log.error("spare worker cannot start: %s", message.failure)
            return
        if device.spare_alarm is not None:
            device.spare_alarm.cancel()
        device.spare_ready, device.failed_spares = message, 0
        _log.info("spare worker ready", extra={"pid": message.pid, "device": message.device})

    def _on_ready(self, device: _Device, message: Ready) -> None:
        if message.failure is not None:  # the process now ends, or its start alarm fires
            if not self._end_start(message.failure):
                _log.error("worker cannot start: %s", message.failure)
            return
        device.take_rounds()  # cancels that alarm
        device.is_ready = True
        _log.info("worker ready", extra={"pid": message.pid, "device": message.device})
        if all(each.is_ready for each in self._devices):
            self._end_start(None)
        self._on_event(Event(device.index, message))
        is_wanted = message.device == "cpu" if self._has_spares is None else self._has_spares
        if is_wanted:
            device.failed_spares = 0
            self._spawn_spare(device)

    def _on_hang(self, device: _Device, process: WorkerProcess, seconds: float) -> None:
        """Replace a worker that is stuck, without waiting for its death: it may not be killable."""
        if process is device.process and not self._is_closed:
            process.kill()
            self._on_down(device, f"hung for {seconds:.0f} s")

    def _on_death(self, device: _Device, process: WorkerProcess) -> None:
        if process is device.process and not self._is_closed:
            self._on_down(device, f"died ({process.exit_reason})")
        elif process is device.spare and not self._is_closed:
            self._on_spare_down(device, f"died ({process.exit_reason})")

    def _on_down(self, device: _Device, what: str) -> None:
        """Report the lost round; then the spare takes over, or another worker is started.

        The pause before a start grows with the deaths in a row, and so does that before a spare serves.
        """
        pid = None if device.process is None else device.process.pid
        _log.error("worker %s", what, extra={"pid": pid, "device": device.config.device})
        was_ready, device.is_ready, device.process = device.is_ready, False, None
        device.failed_starts = 0 if was_ready else device.failed_starts + 1
        if was_ready or self.is_ready:
            self._last_ready = time.monotonic()
        lost = device.take_rounds()
        if self._end_start(f"a worker {what} while it was starting; see the log"):
            return
        pause = _RESTART_SECONDS[min(device.deaths_in_a_row, len(_RESTART_SECONDS) - 1)]
        device.deaths_in_a_row += 1
        asyncio.get_running_loop().call_later(pause, self._replace, device)
        self._on_event(Event(device.index, "lost", lost))
        seconds_down = time.monotonic() - self._last_ready
        if device.failed_starts >= _STUCK_STARTS and seconds_down >= _STUCK_SECONDS:
            self._on_event(Event(device.index, "stuck"))

    def _end_start(self, failure: str | None) -> bool:
        """Let `start` return or raise; False if it does not wait any more."""
        if self._started is None or self._started.done():
            return False
        self._started.set_result(failure)
        return True
