"""Simulated evaluations: folders with results.jsonl and summary.json as gts evaluate writes them."""

import json
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

VOTES = ("majority", "confidence", "best", "centroid")


@dataclass(frozen=True)
class Simulated:
    """What to simulate."""

    samplers: tuple[str, ...] = ("deterministic", "dropout:0.1", "gaussian:1.0", "gts")
    budget: int = 128
    questions: int = 60
    thoughts: int = 6
    seed: int = 0
    model: str = "coconut-tiny"
    kind: str = "coconut"
    width: int = 128
    parameters: int = 3_100_000
    data: str = "embedded:test"
    malformed: tuple[tuple[int, str], ...] = ()

    def changed(self, **changes: Any) -> "Simulated":
        return replace(self, **changes)


def write_run(folder: Path, what: Simulated = Simulated()) -> Path:  # noqa: B008 - it is frozen
    """Write both files of a simulated evaluation."""
    records = simulate(what)
    folder.mkdir(parents=True)
    (folder / "results.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    write_summary(folder / "summary.json", what, records)
    return folder


def write_summary(path: Path, what: Simulated, records: list[dict[str, Any]] | None = None) -> Path:
    path.write_text(json.dumps(summarise(what, records or simulate(what)), indent=2))
    return path


def budgets(budget: int) -> list[int]:
    return sorted({2**power for power in range(budget.bit_length())} | {budget})


def simulate(what: Simulated) -> list[dict[str, Any]]:
    """Draw every (sampler, question): easy and hard questions, a better and a worse sampler."""
    records = []
    for place, spec in enumerate(what.samplers):
        for index in range(what.questions):
            random_ = random.Random(f"{what.seed} {spec} {index}")
            ease = random.Random(f"{what.seed} {index}").betavariate(0.5, 0.7)
            records.append(_record(what, spec, index, ease ** (1.6 - 0.2 * place), random_))
    return records


def _record(
    what: Simulated, spec: str, index: int, chance: float, random_: random.Random
) -> dict[str, Any]:
    is_sampling = spec != "deterministic"
    count = what.budget if is_sampling else 1
    correct = [i for i in range(count) if random_.random() < chance]
    at = budgets(count)
    share = 0.1 + 0.9 * chance**0.7 * random_.uniform(0.8, 1.0)
    votes = VOTES if what.kind != "cot" else VOTES[:3]
    return {
        "sampler": spec,
        "index": index,
        "truth": "42",
        "operations": 2 + index % 3,
        "deterministic": "42" if chance > 0.4 else "41",
        "deterministic_correct": chance > 0.4,
        "correct": correct,
        "unique": {str(n): round(1 + (1 - chance) * math.log2(n), 3) for n in at},
        "votes": {
            vote: {str(n): [int(chance + 0.1 * place > 0.5 / n**0.1), share, share] for n in at}
            for place, vote in enumerate(votes)
        },
        "gain": random_.gauss(1.2, 1.0) if is_sampling else None,
        "gain_share": 0.2 if is_sampling else None,
        "js": random_.uniform(0.02, 0.2) if is_sampling else None,
        "snr": _snr(what, random_) if spec.startswith("gts") else None,
        "sigma": [0.5] * what.thoughts if spec.startswith("gts") else None,
        "tokens": 6 * count,
        "prompt_tokens": 40,
        "trajectories": count,
        "seconds": 0.01 * count,
    }


def _snr(what: Simulated, random_: random.Random) -> list[float]:
    return [abs(random_.gauss(0.7 + 0.3 * (k % 2), 0.15)) for k in range(what.thoughts)]


def summarise(what: Simulated, records: list[dict[str, Any]]) -> dict[str, Any]:
    """Reduce simulated records to a summary, with intervals of the normal approximation."""
    by_spec = {
        spec: [record for record in records if record["sampler"] == spec] for spec in what.samplers
    }
    first = by_spec[what.samplers[0]]
    operations = sorted({record["operations"] for record in first})
    learned = [spec for spec in what.samplers if spec.startswith("gts")]
    return {
        "version": 1,
        "config": {
            "model": what.model,
            "data": what.data,
            "samplers": list(what.samplers),
            "budget": what.budget,
            "budgets": budgets(what.budget),
            "gain_budget": 32,
            "limit": what.questions,
            "seed": what.seed,
        },
        "model": {
            "name": what.model,
            "kind": what.kind,
            "fingerprint": "ab12" * 16,
            "thoughts": what.thoughts,
            "width": what.width,
            "parameters": what.parameters,
        },
        "data": {
            "name": what.data,
            "rows": what.questions,
            "malformed": [{"line": line, "reason": reason} for line, reason in what.malformed],
            "digest": "cd34" * 16,
        },
        "deterministic": {
            "accuracy": interval([record["deterministic_correct"] for record in first]),
            "by_operations": {
                str(steps): interval(
                    [r["deterministic_correct"] for r in first if r["operations"] == steps]
                )
                for steps in operations
            },
        },
        "samplers": {spec: _sampler(spec, rows) for spec, rows in by_spec.items()},
        "paired": [
            pair
            for against in learned
            for spec in what.samplers
            if spec not in ("deterministic", against)
            for pair in _paired(what, by_spec, spec, against)
        ],
        "seconds": 12.5,
    }


def _sampler(spec: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    is_sampling = spec != "deterministic"
    at = budgets(rows[0]["trajectories"])
    gain = interval([row["gain"] for row in rows]) if is_sampling else None
    js = interval([row["js"] for row in rows]) if is_sampling else None
    return {
        "pass_at": {str(n): interval(_pass(rows, n)) for n in at},
        "first_n": {str(n): interval([min(r["correct"], default=n) < n for r in rows]) for n in at},
        "unique": {str(n): interval([row["unique"][str(n)] for row in rows]) for n in at},
        "votes": {
            vote: {str(n): interval([row["votes"][vote][str(n)][0] for row in rows]) for n in at}
            for vote in rows[0]["votes"]
        },
        "gain": gain,
        "gain_whole": None,
        "gain_rate": interval([row["gain"] > 0.5 for row in rows]) if is_sampling else None,
        "js": js,
        "regime": "useful" if is_sampling else None,
        "snr": None,
        "sigma": None,
        "calibration": {"majority": _reliability(rows)},
        "tokens": sum(row["tokens"] for row in rows),
        "trajectories": sum(row["trajectories"] for row in rows),
        "seconds": 3.0,
    }


def _reliability(rows: list[dict[str, Any]]) -> dict[str, Any]:
    last = str(rows[0]["trajectories"])
    voted = [row["votes"]["majority"][last] for row in rows]
    bins = []
    for tenth in range(10):
        inside = [(right, s) for right, s, _ in voted if min(int(s * 10), 9) == tenth]
        share = sum(s for _, s in inside) / len(inside) if inside else None
        accuracy = sum(right for right, _ in inside) / len(inside) if inside else None
        edges = {"low": tenth / 10, "high": (tenth + 1) / 10, "count": len(inside)}
        bins.append({**edges, "share": share, "accuracy": accuracy})
    gaps = (abs(b["share"] - b["accuracy"]) * b["count"] for b in bins if b["count"])
    return {"ece": sum(gaps) / len(rows), "bins": bins}


def _paired(
    what: Simulated, by_spec: dict[str, list[dict[str, Any]]], spec: str, against: str
) -> list[dict[str, Any]]:
    pairs = []
    for n in sorted({8, 32, what.budget}):
        if n <= what.budget:
            ours, theirs = _pass(by_spec[against], n), _pass(by_spec[spec], n)
            pairs.append((f"pass@{n}", [a - b for a, b in zip(ours, theirs, strict=True)]))
    gains = zip(by_spec[against], by_spec[spec], strict=True)
    pairs.append(("gain", [ours["gain"] - theirs["gain"] for ours, theirs in gains]))
    written = []
    for measure, differences in pairs:
        found = interval(differences)
        names = {"sampler": spec, "against": against, "measure": measure}
        written.append({**names, "difference": found.pop("value"), **found})
    return written


def _pass(rows: list[dict[str, Any]], n: int) -> list[float]:
    drawn = ((row["trajectories"], len(row["correct"])) for row in rows)
    return [1 - math.comb(total - right, n) / math.comb(total, n) for total, right in drawn]


def interval(values: Sequence[float]) -> dict[str, float]:
    mean = sum(values) / len(values)
    variance = sum((value - mean) ** 2 for value in values) / len(values)
    half = 1.96 * math.sqrt(variance / len(values))
    return {"value": mean, "low": mean - half, "high": mean + half}
