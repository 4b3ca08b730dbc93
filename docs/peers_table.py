"""The tables of the benchmark against other tools, from results/peers-*.json; used by `docs/fill_tables.py`.

A tool that failed on a task has no score there, so means over different tasks would flatter it. Scores are
means over the tasks that every listed tool finished, and failures stand beside them. In ranks, a tool that
failed is last. In distances to the best of the others, means of a table are over all of its mechanisms, and a
tool that failed at one of them is left out.
"""

import math
from collections.abc import Sequence
from statistics import median
from typing import Any

SCORES = (
    ("rmse", "RMSE"),
    ("crps", "CRPS"),
    ("coverage", "coverage"),
    ("energy", "energy"),
    ("accuracy", "accuracy"),
)
RANKED = (("rmse", "RMSE", 1), ("crps", "CRPS", 1), ("accuracy", "accuracy", -1))  # 1: lower is better
PARTS = (("train", "fitted rows"), ("test", "new rows"))
NEAR = 0.02
OWN = "AutoImputer"
DASH = "\N{EN DASH}"


def peers_tables(results: dict[str, Any]) -> str:
    """Return a table of scores on new rows for each mechanism, and where results come from."""
    records = results["records"]
    parts = []
    for mechanism in dict.fromkeys(record["mechanism"] for record in records):
        some = [record for record in records if record["mechanism"] == mechanism]
        parts.append(_table(mechanism, some))
    parts.append(_origin(results))
    return "\n\n".join(parts)


def ranks_table(results: dict[str, Any]) -> str:
    """Return the mean rank of each method over all tasks, and how often it is near the best."""
    records = results["records"]
    methods = list(dict.fromkeys(record["method"] for record in records))
    tasks = list(dict.fromkeys((record["mechanism"], record["table"]) for record in records))
    by_task = {(record["method"], record["mechanism"], record["table"]): record for record in records}
    columns: dict[str, list[str]] = {}
    for part, where in PARTS:
        for score, label, sign in RANKED:
            losses = []
            for task in tasks:
                found = [by_task.get((method, *task), {}).get(part, {}).get(score) for method in methods]
                if any(value is not None for value in found):
                    losses.append([math.inf if value is None else sign * value for value in found])
            columns[f"{label}, {where}"] = _ranked(losses, len(methods))
    lines = [f"| {len(tasks)} tasks | {' | '.join(columns)} |", "|" + " --- |" * (len(columns) + 1)]
    for position, method in enumerate(methods):
        cells = [column[position] for column in columns.values()]
        lines.append(f"| {method} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n\n" + _origin(results)


def _ranked(losses: Sequence[Sequence[float]], n_methods: int) -> list[str]:
    """Return mean ranks of methods, with the share of tasks in which each is near the best in brackets."""
    ranks, near = [0.0] * n_methods, [0] * n_methods
    for task in losses:
        best = min(task)
        for m, loss in enumerate(task):
            ranks[m] += sum(other < loss for other in task) + (1 + sum(other == loss for other in task)) / 2
            near[m] += loss <= best + NEAR * abs(best)
    if not losses:
        return [DASH] * n_methods
    return [f"{r / len(losses):.1f} ({n / len(losses):.0%})" for r, n in zip(ranks, near, strict=True)]


def behind_table(results: dict[str, Any]) -> str:
    """Return, for each table, how far `AutoImputer` is behind the best of the others, which is named.

    RMSE and CRPS are ratios. Accuracies are differences, with the standard error of the own accuracy.
    """
    records = results["records"]
    columns = [(part, score, sign) for part, _ in PARTS for score, _, sign in RANKED]
    heads = [f"{label}, {where}" for _, where in PARTS for _, label, _ in RANKED]
    lines = [f"| behind the best other | {' | '.join(heads)} |", "|" + " --- |" * (len(heads) + 1)]
    for table in dict.fromkeys(record["table"] for record in records):
        some = [record for record in records if record["table"] == table]
        lines.append(f"| {table} | {' | '.join(_behind(some, *column) for column in columns)} |")
    return "\n".join(lines) + "\n\n" + _origin(results)


def behind_tools_table(results: dict[str, Any]) -> str:
    """Return the same, with the methods of other tools as the only others."""
    kept = [
        record for record in results["records"] if record["tool"] != "halfseen" or record["method"] == OWN
    ]
    table = behind_table(results | {"records": kept})
    return table.replace("| behind the best other |", "| behind the best other tool |", 1)


def _behind(records: Sequence[dict[str, Any]], part: str, score: str, sign: int) -> str:
    """Return the distance to the best other method over the mechanisms of one table; negative if ahead."""
    n_mechanisms = len({record["mechanism"] for record in records})
    found: dict[str, list[float]] = {}
    for record in records:
        value = record.get(part, {}).get(score)
        if value is not None:
            found.setdefault(record["method"], []).append(value)
    means = {
        name: sum(values) / n_mechanisms for name, values in found.items() if len(values) == n_mechanisms
    }
    others = {name: mean for name, mean in means.items() if name != OWN}
    if OWN not in means or not others:
        return DASH
    best = min(others, key=lambda name: sign * others[name])
    if sign > 0:
        return f"{means[OWN] / others[best] - 1:+.1%} ({best})"
    counts = [
        record.get("cells", {}).get(part, {}).get("levels") for record in records if record["method"] == OWN
    ]
    error = ""
    if all(counts):
        variance = sum(p * (1 - p) / n for p, n in zip(found[OWN], counts, strict=True))
        error = f" \N{PLUS-MINUS SIGN} {100 * math.sqrt(variance) / n_mechanisms:.1f}"
    return f"{100 * (others[best] - means[OWN]):+.1f}{error} points ({best})"


def _origin(results: dict[str, Any]) -> str:
    settings = results["settings"]
    commits: dict[bool, dict[str, None]] = {True: {}, False: {}}
    for record in results["records"]:
        commits[record.get("tool") == "halfseen"][record.get("commit", results["commit"])[:7]] = None
    ours, others = (_list(list(commits[own])) for own in (True, False))
    return (
        f"Each tool received at most {settings['max_rows']} rows of each table, in which "
        f"{settings['rate']:.0%} of the values were missing, and had {settings['processor_seconds']} s of "
        f"processor time. Distributions are represented by {settings['n_draws']} draws, so the smallest and "
        f"the largest draw should enclose 80% of the values.{_precision(results)} The results were "
        f"produced by `make bench-peers SCALE={results['scale']}`, for halfseen at {ours} and for other "
        f"tools at {others}."
    )


def _precision(results: dict[str, Any]) -> str:
    """Return which methods made more draws for the CRPS, and its error otherwise; nothing if none did."""
    records, settings = results["records"], results["settings"]
    n_mechanisms = len({record["mechanism"] for record in records})
    made: dict[str, dict[str, None]] = {}
    errors = []
    for record in records:
        scores = [record[part] for part, _ in PARTS if "crps_error" in record.get(part, {})]
        errors += [score["crps_error"] / score["crps"] for score in scores]
        if scores:
            made.setdefault(record["method"], {})[record["mechanism"]] = None
    if not errors:
        return ""
    groups: dict[tuple[str, ...], list[str]] = {}
    for method, mechanisms in made.items():
        groups.setdefault(tuple(mechanisms), []).append(method)
    named = [
        ", ".join(methods) + ("" if len(mechanisms) == n_mechanisms else f" under {' and '.join(mechanisms)}")
        for mechanisms, methods in groups.items()
    ]
    return (
        f" The CRPS of {'; '.join(named)} is computed from {settings['many_draws']} draws. If it is computed "
        f"from {settings['n_draws']} draws, as otherwise, its standard error due to drawing is "
        f"{median(errors):.1%} (median over tasks)."
    )


def _list(commits: Sequence[str]) -> str:
    if not commits:
        return DASH
    *first, last = commits
    return f"the commits {', '.join(first)} and {last}" if first else f"commit {last}"


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
