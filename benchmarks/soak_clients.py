"""Clients of the soak test: what they send, and what must come back.

Every answer is compared with the one computed alone in this process, to the last bit; a partial one
with the same prefix of trajectories; a diagnosis with the server's own first answer.
"""

import asyncio
import contextlib
import itertools
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import httpx
import torch

import latent
from latent.answers import show_answer
from latent.solved import Solved

MODELS = ("coconut-tiny", "codi-tiny")
SAMPLERS = (*["gts"] * 6, "gaussian:0.5", "dropout:0.1", "deterministic")
BUDGETS = (1, 1, 2, 2, 4, 4, 8, 8, 16, 32)
LARGEST_BODY = 65536
# Waits of a client whose request was refused because no worker was ready, or too many lanes waited.
RETRY_STATUSES = frozenset({429, 503})


@dataclass(frozen=True)
class Case:
    """One solve request, and the trajectories that its seed must give."""

    body: dict[str, Any]
    alone: Solved

    def matches(self, response: dict[str, Any]) -> bool:
        """Whether a response holds the votes of the same trajectories, up to the budget it used."""
        used = response["budget_used"]
        own = self.alone.trajectories[:used]
        votes: dict[Decimal | None, list[int]] = {}
        for trajectory in own:
            votes.setdefault(trajectory.answer, []).append(trajectory.index)
        expected = {show_answer(answer): indices for answer, indices in votes.items()}
        found = {c["answer"]: c["trajectories"] for c in response["candidates"]}
        if found != expected or response["seed"] != self.alone.seed:
            return False
        if used < len(self.alone.trajectories):
            return True
        shares = {show_answer(c.answer): (c.share, c.confidence) for c in self.alone.candidates}
        served = {c["answer"]: (c["share"], c["confidence"]) for c in response["candidates"]}
        return response["answer"] == self.alone.answer and served == shares


@dataclass
class Outcome:
    """What the clients saw."""

    sent: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    changed: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    not_ready_seconds: list[float] = field(default_factory=list)
    deaths: Counter[str] = field(default_factory=Counter)


def make_cases(count: int, seed: int = 0) -> list[Case]:
    """Draw questions, models, samplers, budgets and votes; solve each alone."""
    torch.set_num_threads(1)
    dice = random.Random(seed)
    reasoners = {name: latent.load(name) for name in MODELS}
    cases = []
    for number in range(count):
        name, budget = dice.choice(MODELS), dice.choice(BUDGETS)
        first, second = dice.randint(20, 99), dice.randint(2, 19)
        question = (
            f"Ivan has {first} apples. He finds {second} on the ground. "
            "He gives 14 to the neighbours. How many apples are left?"
        )
        chosen = {"sampler": dice.choice(SAMPLERS), "vote": dice.choice(("majority", "confidence"))}
        alone = reasoners[name].solve(question, budget=budget, seed=number, **chosen)
        body = {"question": question, "model": name, "budget": budget, "seed": number, **chosen}
        cases.append(Case(body, alone))
    return cases


@dataclass
class Load:
    """What the clients of one run send and have seen."""

    cases: Sequence[Case]
    requests: int
    outcome: Outcome = field(default_factory=Outcome)
    numbers: Iterator[int] = field(default_factory=itertools.count)
    diagnosed: dict[int, Any] = field(default_factory=dict)

    async def run(self, url: str, clients: int) -> None:
        """Let clients, each with connections of its own, send until all requests are sent."""

        # A pool of httpx looks at all its connections for each request, so one for all is slow.
        async def client(number: int) -> None:
            async with httpx.AsyncClient(base_url=url, timeout=600, verify=False) as http:
                await Client(http, self).send_all(random.Random(number))

        await asyncio.gather(*(client(number) for number in range(clients)))


class Client:
    """Sends requests one after the other, and compares what comes back."""

    def __init__(self, http: httpx.AsyncClient, load: Load) -> None:
        self.http, self.load, self.outcome = http, load, load.outcome

    async def send_all(self, dice: random.Random) -> None:
        """Send requests until all of the run are sent."""
        shares = {
            self._solve: 160,
            self._adaptive: 10,
            self._deadline: 10,
            self._stream: 10,
            self._cancel: 4,
            self._many: 4,
            self._malformed: 4,
            self._oversize: 2,
            self._diagnose: 1,
        }
        kinds, weights = list(shares), list(shares.values())
        while (n := next(self.load.numbers)) < self.load.requests:
            case = dice.choice(self.load.cases)
            try:
                await dice.choices(kinds, weights)[0](case)
            except Exception as error:  # a lost request is a result of the test, not its end
                self.outcome.unexpected.append(f"request {n}: {type(error).__name__}: {error}")
            self.outcome.sent = max(self.outcome.sent, n + 1)

    async def _post(self, path: str, body: dict[str, Any], *expected: int) -> Any:
        """Send until a worker takes it; count the status, and return the JSON of an expected one."""
        while True:
            response = await self.http.post(path, json=body)
            self.outcome.statuses[f"{path} {response.status_code}"] += 1
            if response.status_code in expected:
                return response.json()
            if response.status_code not in RETRY_STATUSES:
                self.outcome.unexpected.append(f"{path} {response.status_code}: {response.text}")
                return None
            await asyncio.sleep(min(float(response.headers.get("Retry-After", 1)), 1.0))

    def _compare(self, case: Case, response: dict[str, Any] | None) -> None:
        if response is not None and not case.matches(response):
            self.outcome.changed.append(f"{case.body} gave {response}")

    async def _solve(self, case: Case) -> None:
        self._compare(case, await self._post("/solve", case.body, 200))

    async def _adaptive(self, case: Case) -> None:
        body = {**case.body, "vote": "majority", "stop": {"certainty": 0.9}}
        response = await self._post("/solve", body, 200)
        if response is not None and case.body["vote"] == "majority":
            self._compare(case, response)

    async def _deadline(self, case: Case) -> None:
        response = await self._post("/solve", {**case.body, "deadline_ms": 50}, 200, 504)
        if response is not None and "error" not in response:
            self._compare(case, response)

    async def _many(self, case: Case) -> None:
        questions = [case.body["question"]] * 2
        response = await self._post("/solve", {**case.body, "question": questions}, 200)
        for one in (response or {}).get("results", ()):
            self._compare(case, one)

    async def _diagnose(self, case: Case) -> None:
        body = {key: case.body[key] for key in ("question", "model", "seed")} | {
            "budget": 4,
            "samplers": ["gts"],
        }
        response = await self._post("/diagnose", body, 200)
        if response is not None:
            response.pop("id")
            if self.load.diagnosed.setdefault(case.body["seed"], response) != response:
                self.outcome.changed.append(f"diagnosis of {body}")

    async def _malformed(self, case: Case) -> None:
        await self._post("/solve", {**case.body, "budget": "many"}, 422)
        await self._post("/solve", {**case.body, "model": "nobody"}, 404)
        response = await self.http.post(
            "/solve", content=b'{"question": ', headers={"Content-Type": "application/json"}
        )
        self.outcome.statuses[f"/solve {response.status_code}"] += 1
        if response.status_code != 400:
            self.outcome.unexpected.append(f"malformed JSON: {response.status_code}")

    async def _oversize(self, case: Case) -> None:
        await self._post("/solve", {**case.body, "question": "x" * LARGEST_BODY}, 413)

    async def _stream(self, case: Case) -> None:
        async with contextlib.aclosing(self._events(case.body)) as events:
            async for event, data in events:
                if event == "error":
                    self.outcome.unexpected.append(f"stream: {data}")
                if event == "result":
                    self._compare(case, data)
                if event in ("result", "error"):
                    return
        self.outcome.unexpected.append("a stream ended without a result")

    async def _cancel(self, case: Case) -> None:
        async with contextlib.aclosing(self._events({**case.body, "budget": 64})) as events:
            async for _ in events:
                return

    async def _events(self, body: dict[str, Any]) -> AsyncIterator[tuple[str, Any]]:
        while True:
            async with self.http.stream(
                "POST", "/solve", json={**body, "stream": True}
            ) as response:
                self.outcome.statuses[f"/solve stream {response.status_code}"] += 1
                if response.status_code == 200:
                    name = ""
                    async for line in response.aiter_lines():
                        if line.startswith("event: "):
                            name = line.removeprefix("event: ")
                        elif line.startswith("data: "):
                            yield name, json.loads(line.removeprefix("data: "))
                    return
                if response.status_code not in RETRY_STATUSES:
                    self.outcome.unexpected.append(f"stream {response.status_code}")
                    return
            await asyncio.sleep(0.5)
