"""`gts` with a real worker that fails when a question asks for it.

"die": the process kills itself; "raise": the rollout raises; "memory": rounds of more than 16 lanes do
not fit the device; "no room": none does; "hang": no round ends; "slow": every round takes half a second
longer; "until PATH": a round waits for this file to exist; "first until PATH": all but the first do.
"""

import os
import re
import signal
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

import service.worker.worker
from service.engine.messages import OutOfMemory, RoundReport, RoundTask, WorkerConfig


class FaultyWorker(service.worker.worker.Worker):
    """The real worker, with faults on demand."""

    def run(self, task: RoundTask) -> RoundReport | OutOfMemory:
        text = " ".join(item.question for item in task.tasks)
        if "slow" in text:
            time.sleep(0.5)
        if "hang" in text:
            time.sleep(3600)
        is_first = any(0 in item.indices for item in task.tasks)
        if (wanted := re.search(r"until (\S+)", text)) and not ("first" in text and is_first):
            while not Path(wanted[1]).exists():
                time.sleep(0.01)
        if "die" in text:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().run(task)

    def _solve(self, reasoner: Any, sampler: Any, lane_limit: int, asked: Any) -> Any:
        text = " ".join(item.question for item, _ in asked)
        if "raise" in text:
            raise RuntimeError("on demand")
        lanes = sum(len(item.indices) for item, _ in asked)
        if "no room" in text:
            torch.empty(2**60)  # raises as on a CPU
        if "memory" in text and lanes > 16:
            raise torch.OutOfMemoryError("on demand")  # raises as on a GPU
        return super()._solve(reasoner, sampler, lane_limit, asked)


def faulty_main(connection: Connection, config: WorkerConfig) -> None:
    """Run the faulty worker in the real worker's loop."""
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - faults on demand print tracebacks
    with patch.object(service.worker.worker, "Worker", FaultyWorker):
        service.worker.worker.main(connection, config)


if __name__ == "__main__":
    from functools import partial

    import service.server
    from cli.main import main
    from tests.service.faulty import faulty_main as importable_main

    service.server.serve = partial(service.server.serve, main=importable_main)
    main()
