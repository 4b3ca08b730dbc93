"""The tables of the benchmark against other tools, from results/peers-*.json; used by `docs/fill_tables.py`.

A tool that failed on a task has no score there, so means over different tasks would flatter it. Scores are
means over the tasks that every listed tool finished, and failures stand beside them.
"""

from collections.abc import Sequence
from typing import Any

SCORES = (
    ("rmse", "RMSE"),
    ("crps", "CRPS"),
    ("coverage", "coverage"),
    ("energy", "energy"),
    ("accuracy", "accuracy"),
)
DASH = "\N{EN DASH}"


def peers_tables(results: dict[str, Any]) -> str:
    """Return a table of scores on new rows for each mechanism, and where results come from."""
    records = results["records"]
    parts = []
    for mechanism in dict.fromkeys(record["mechanism"] for record in records):
        some = [record for record in records if record["mechanism"] == mechanism]
        parts.append(_table(mechanism, some))
    settings = results["settings"]
    parts.append(
        f"At most {settings['max_rows']} rows of each table, {settings['rate']:.0%} of the values missing, "
        f"{settings['processor_seconds']} s of processor time for an answer; {settings['n_draws']} draws, "
        "whose extremes should enclose 80% of the values. Written by "
        f"`make bench-peers SCALE={results['scale']}`, commit {results['commit'][:7]}."
    )
    return "\n\n".join(parts)


def _table(mechanism: str, records: Sequence[dict[str, Any]]) -> str:
    methods = list(dict.fromkeys(record["method"] for record in records))
    tables = list(dict.fromkeys(record["table"] for record in records))
    by_task = {(record["method"], record["table"]): record for record in records}
    finished = {method: {t for t in tables if "test" in by_task.get((method, t), {})} for method in methods}
    listed = [method for method in methods if len(finished[method]) > len(tables) / 2]
    common = [t for t in tables if all(t in finished[method] for method in listed)]
    head = f"{mechanism}, new rows of {len(common)} of {len(tables)} tables"
    lines = [
        f"| {head} | {' | '.join(label for _, label in SCORES)} | seconds | MB | failed |",
        "|" + " --- |" * (len(SCORES) + 4),
    ]
    for method in methods:
        shown = [by_task[method, t] for t in common] if method in listed else []
        tried = [by_task[method, t] for t in tables if (method, t) in by_task]
        cells = [_mean([one["test"].get(score) for one in shown]) for score, _ in SCORES]
        cells += [_mean([one["seconds"] for one in shown], 1), _mean([one["megabytes"] for one in shown], 0)]
        failed = len(tried) - len(finished[method])
        lines.append(f"| {method} | {' | '.join(cells)} | {failed} of {len(tried)} |")
    return "\n".join(lines)


def _mean(values: Sequence[float | None], digits: int = 3) -> str:
    known = [value for value in values if value is not None]
    return f"{sum(known) / len(known):.{digits}f}" if known else DASH
