"""Writes tables of stored results into pages: `python docs/fill_tables.py`, and with `--check` only looks.

A page says where, and of which scores:

    <!-- table of results/NAME-SCALE.json: SCORE; SCORE -->
    <!-- end of table -->

For each score a table has a line for each model and a column for each setting, or the other way round if
there are more settings; with the mean over runs, in brackets the paper's number, if there is one, and a word
where runs failed. Parts of settings that all runs share are stated in the caption. Results with one setting
can be one table instead, with a line for each model and a column for each score:

    <!-- scores of results/NAME-SCALE.json: SCORE; SCORE -->
    <!-- end of table -->

The claims that an experiment declared before it ran, with the outcome and the numbers behind it:

    <!-- claims of results/NAME-SCALE.json: all -->
    <!-- end of table -->

or only those that have runs, with `run` in place of `all`. Of the experiment `inference`, `rest` stands for
all settings that have no runs at scale paper.

The benchmark against other tools has tables of its own, of all scores:

    <!-- peers of results/peers-SCALE.json: MECHANISM; MECHANISM -->
    <!-- end of table -->

one of mean ranks over all tables and mechanisms, which begins with `ranks` in place of `peers`, and one of
distances to the best of the others for each table, which begins with `behind`, or with `behind tools` if
other methods of halfseen are left out. What `benchmarks/compare_target.py` found, on tables that are named
or on all of them:

    <!-- choices of results/compare_target.json: all -->
    <!-- end of table -->

Bias and coverage after multiple imputation, by table, coefficient and method, beside the stored results of
mice; of all kinds of tables, or of those that are named:

    <!-- intervals of results/inference-SCALE.json: all -->
    <!-- end of table -->

and those coefficients whose bias or coverage is worse than with mice, beyond the Monte Carlo error:

    <!-- worse of results/inference-SCALE.json: all -->
    <!-- end of table -->

What large tables cost, of one run of `benchmarks/scale.py` and further ones:

    <!-- costs of results/scale.json: scale_NAME; scale_NAME -->
    <!-- end of table -->

All figures, tables and propositions of a work with their states, and the numbers of states of all works:

    <!-- items of papers/works/NAME.toml: all -->
    <!-- end of table -->

    <!-- states of papers/works: all -->
    <!-- end of table -->

and all items that are not reproduced, or not wholly, with `open` in place of `states`.
"""

import json
import math
import re
import sys
from pathlib import Path
from statistics import NormalDist
from typing import Any

from costs_table import costs_table
from peers_table import behind_table, behind_tools_table, peers_tables, ranks_table
from works_table import commit_of, open_table, states_table, works_table

ROOT = Path(__file__).parents[1]
PEERS = {
    "peers": peers_tables,
    "ranks": ranks_table,
    "behind": behind_table,
    "behind tools": behind_tools_table,
}
MICE = "results/inference-mice.json"
PAPER = "results/inference-paper.json"
PLACE = re.compile(
    r"(<!-- (table|scores|claims|peers|ranks|behind|behind tools|choices|intervals|worse|costs) of "
    r"(results/[\w.-]+\.json): "
    r"(.+?) -->\n)"
    r".*?(<!-- end of table -->)",
    re.DOTALL,
)


WORK = re.compile(
    r"(<!-- (items|states|open) of (papers/works[\w./-]*): all -->\n).*?(<!-- end of table -->)", re.DOTALL
)


def fill(page: str, root: Path = ROOT) -> str:
    """Return a page with its tables as the results are now."""

    def table(found: re.Match[str]) -> str:
        start, form, file, named, stop = found.groups()
        results = json.loads((root / file).read_text(encoding="utf-8"))
        scores = [score.strip() for score in named.split(";")]
        if scores == ["rest"]:
            results, scores = _without_settings_of(results, root / PAPER), ["all"]
        if form == "costs":
            others = [json.loads((root / "results" / f"{one}.json").read_text()) for one in scores]
            return start + costs_table([results, *others]) + "\n" + stop
        if form in PEERS:
            chosen = [record for record in results["records"] if record["mechanism"] in scores]
            return start + PEERS[form](results | {"records": chosen}) + "\n" + stop
        if form == "claims":
            return start + _claims(results, scores) + "\n" + stop
        if form == "choices":
            option = " --others" if "others" in file else ""
            return start + _choices(results, scores, option) + "\n" + stop
        if form in ("intervals", "worse"):
            made = _intervals if form == "intervals" else _worse
            return start + made(results, json.loads((root / MICE).read_text()), scores) + "\n" + stop
        rows = [row for row in results["summary"] if row["metric"] in scores]
        shared = _shared(rows)
        if form == "scores":
            tables = [_score_table(results, scores)]
        else:
            tables = [_table(results, score, shared) for score in scores]
        return start + "\n\n".join([*tables, _caption(results, rows, shared)]) + "\n" + stop

    def items(found: re.Match[str]) -> str:
        start, form, path, stop = found.groups()
        made = {"items": works_table, "states": states_table, "open": open_table}
        return f"{start}{made[form](root / path, root)}\n{stop}"

    return WORK.sub(items, PLACE.sub(table, page))


def _shared(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the parts of the settings that are the same in all rows, if other parts differ."""
    settings = [row["setting"] for row in rows]
    same = {key: value for key, value in settings[0].items() if all(s.get(key) == value for s in settings)}
    return same if any(setting != same for setting in settings) else {}


def _table(results: dict[str, Any], score: str, shared: dict[str, Any]) -> str:
    rows = [row for row in results["summary"] if row["metric"] == score]
    settings = list(dict.fromkeys(_name(row["setting"], shared) for row in rows))
    models = list(dict.fromkeys(row["model"] for row in rows))
    if not rows:
        raise ValueError(f"{results['experiment']} at scale {results['scale']} has no score {score!r}.")
    cells = {(row["model"], _name(row["setting"], shared)): _cell(row) for row in rows}
    down, across = models, settings
    if len(settings) > len(models):
        cells = {(setting, model): text for (model, setting), text in cells.items()}
        down, across = settings, models
    return _lines(score, down, across, cells)


def _score_table(results: dict[str, Any], scores: list[str]) -> str:
    rows = [row for row in results["summary"] if row["metric"] in scores]
    if len({_name(row["setting"]) for row in rows}) != 1 or {row["metric"] for row in rows} != set(scores):
        raise ValueError(f"{results['experiment']} must have one setting and the scores {scores}.")
    heads = {score.partition(", ")[0] for score in scores}
    shared = f"{heads.pop()}, " if len(heads) == 1 else ""
    cells = {(row["model"], row["metric"].removeprefix(shared)): _cell(row) for row in rows}
    models = list(dict.fromkeys(row["model"] for row in rows))
    return _lines(shared.removesuffix(", "), models, [score.removeprefix(shared) for score in scores], cells)


def _claims(results: dict[str, Any], named: list[str]) -> str:
    """Return the claims of an experiment with their outcomes, and of which runs."""
    verdicts = [one for one in results["verdicts"] if named == ["all"] or one["evidence"] != "no runs"]
    rest = len(results["verdicts"]) - len(verdicts)
    lines = ["| claim | outcome | evidence |", "|---|---|---|"]
    for verdict in verdicts:
        claim, evidence = (verdict[key].replace("|", "\\|") for key in ("claim", "evidence"))
        lines.append(f"| {claim} | {verdict['outcome']} | {evidence} |")
    source = f"`python -m papers {results['experiment']} --scale {results['scale']}`"
    told = f"Outcomes of {source} at {commit_of(results)}; ± is half of a 95% interval over runs."
    told += f" {rest} further claims have no runs at this scale." if rest else ""
    return "\n".join([*lines, "", told])


def _choices(results: dict[str, Any], named: list[str], option: str) -> str:
    """Return what a comparison of predictors chose beside what was best on new rows, and how it was found."""
    tables = {name: one for name, one in results["tables"].items() if named == ["all"] or name in named}
    across = ["chosen", "best on new rows", "excess loss", "standard error", "of the best"]
    across += ["best single method", "its excess loss", "repetitions", "seconds"]
    cells = {}
    for name, one in tables.items():
        losses, best = one["held_out_losses"], one["single"]["best"]
        numbers = [f"{one[key]:.4f}" for key in ("excess", "standard_error", "standard_error_of_best")]
        texts = [one["winner"], one["best"], *numbers, best, f"{losses[best] - losses[one['best']]:.4f}"]
        texts += [str(one["n_repeats"]), f"{one['seconds']:.0f}"]
        cells |= {(name, head): text for head, text in zip(across, texts, strict=True)}
    budget = next(iter(tables.values()))["budget"]
    paired, own = _count_within(list(tables.values()))
    single_paired, single_own = _count_within([one["single"] for one in tables.values()])
    said = (
        f"The excess loss of the chosen method is at most one standard error of the paired difference on "
        f"{paired} of {len(tables)} tables, and at most one standard error of the mean loss of the best "
        f"method on {own}. If the average is not offered, so that the choice is among single methods, these "
        f"numbers are {single_paired} and {single_own}. The results were produced by "
        f"`python benchmarks/compare_target.py --budget {budget:g}{option}` at commit "
        f"{results['provenance']['commit'][:7]}."
    )
    return f"{_lines('table', list(tables), across, cells)}\n\n{said}"


def _count_within(judged: list[dict[str, Any]]) -> tuple[int, int]:
    """Return on how many tables a choice is within one standard error of the best, by both errors."""
    paired = sum(one["within_one_standard_error"] for one in judged)
    return paired, sum(one["within_one_standard_error_of_best"] for one in judged)


def _intervals(results: dict[str, Any], mice: dict[str, Any], named: list[str]) -> str:
    """Return bias and coverage of each coefficient, and how they were found."""
    heads = ["rows", "coefficient", "method", "tables", "bias", "bias / SD", "coverage", "width", "CPU s"]
    lines = [["table", *heads], ["---"] * (len(heads) + 1)]
    for (table, rows), methods in _blocks(results, mice).items():
        for coefficient in _coefficients(methods) if named == ["all"] or table in named else ():
            for method, (scores, count) in methods.items():
                texts = _interval_texts(scores, coefficient, count)
                lines.append([table, str(rows), f"`{coefficient}`", method, str(count), *texts])
    command = f"python -m papers {results['experiment']} --scale {results['scale']}"
    versions = mice["versions"]
    said = (
        f"Run `{command}` to repeat them; these were produced at {_commits_by_table(results, named)}, and "
        f"those of mice by `{mice['script']}` with R {versions['R']}, mice {versions['mice']} and "
        f"{mice['draws']} draws."
    )
    return "\n".join([*(f"| {' | '.join(line)} |" for line in lines), "", said])


def _without_settings_of(results: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return results without tables and claims that have runs in another file."""
    other = json.loads(path.read_text(encoding="utf-8"))
    known = {(row["setting"]["table"], row["setting"]["rows"]) for row in other["summary"]}
    judged = {verdict["claim"] for verdict in other["verdicts"] if verdict["evidence"] != "no runs"}

    def left(one: dict[str, Any]) -> bool:
        return (one["setting"]["table"], one["setting"]["rows"]) not in known

    rows = {part: [one for one in results[part] if left(one)] for part in ("summary", "cells")}
    return results | rows | {"verdicts": [one for one in results["verdicts"] if one["claim"] not in judged]}


def _commits_by_table(results: dict[str, Any], named: list[str]) -> str:
    """Return the commits of the runs of some tables, and of which tables each is if there are several."""
    last = results["provenance"]["commit"]
    found: dict[str, dict[str, None]] = {}
    for cell in results["cells"]:
        table, rows = cell["setting"]["table"], cell["setting"]["rows"]
        if named == ["all"] or table in named:
            found.setdefault(cell.get("commit", last), {})[f"{table} ({rows} rows)"] = None
    if len(found) <= 1:
        return commit_of({"provenance": {"commit": next(iter(found), last)}})
    return "; ".join(
        f"{commit_of({'provenance': {'commit': commit}})} ({', '.join(tables)})"
        for commit, tables in found.items()
    )


def _worse(results: dict[str, Any], mice: dict[str, Any], named: list[str]) -> str:
    """Return coefficients of which the default has more bias, or a worse coverage, than mice."""
    heads = ["table", "rows", "coefficient", "worse in", "default", "mice"]
    lines = [heads, ["---"] * len(heads)]
    compared = 0
    for (table, rows), methods in _blocks(results, mice).items():
        if not {"default", "mice"} <= set(methods) or (named != ["all"] and table not in named):
            continue
        for coefficient in _coefficients(methods):
            compared += 1
            ours, theirs = (_distances(*methods[one], coefficient) for one in ("default", "mice"))
            for score, (own, error, shown) in ours.items():
                other, their_error, their_shown = theirs[score]
                if own - other > 2 * math.hypot(error, their_error):
                    lines.append([table, str(rows), f"`{coefficient}`", score, shown, their_shown])
    if len(lines) == 2:
        return f"None of {compared} coefficients."
    lines = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([*lines, "", f"{compared} coefficients were compared."])


def _distances(scores: dict[str, float], count: int, coefficient: str) -> dict[str, tuple[float, float, str]]:
    """Return how far bias and coverage are from 0 and 95%, their standard errors, and what they are."""
    bias, variance, coverage = (
        scores[f"{score} of {coefficient}"] for score in ("bias", "variance", "coverage")
    )
    ratio = bias / math.sqrt(variance)
    expected = 0.95 * 0.05 / count  # also where all intervals cover, which has no estimated error
    error = math.sqrt(max(coverage * (1 - coverage) / count, expected))
    return {
        "bias / SD": (abs(ratio), 1 / math.sqrt(count), f"{ratio:+.2f}"),
        "coverage": (abs(coverage - 0.95), error, f"{coverage:.2f}"),
    }


def _blocks(results: dict[str, Any], mice: dict[str, Any]) -> dict[tuple[str, int], dict[str, Any]]:
    """Return by table and rows, and by method, the mean scores and the number of tables that they are of."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for row in results["summary"]:
        setting, model = row["setting"], row["model"]
        count = (row["n_runs"] - row["n_failed"]) * setting["repetitions"]
        methods = found.setdefault((setting["table"], setting["rows"]), {})
        methods.setdefault(model, ({}, count))[0][row["metric"]] = row["mean"]
    for one in mice["cells"]:
        if (one["table"], one["rows"]) in found:
            found[one["table"], one["rows"]]["mice"] = (one["scores"], one["repetitions"])
    return found


def _coefficients(methods: dict[str, Any]) -> list[str]:
    scores = next(iter(methods.values()))[0]
    return [score.removeprefix("bias of ") for score in scores if score.startswith("bias of ")]


def _interval_texts(scores: dict[str, float], coefficient: str, count: int) -> list[str]:
    """Return bias, bias in standard deviations, coverage with its 95% interval, width and seconds."""
    bias, variance, coverage, width = (
        scores[f"{score} of {coefficient}"] for score in ("bias", "variance", "coverage", "width")
    )
    squared = NormalDist().inv_cdf(0.975) ** 2 / count  # the interval of Wilson, as in papers/claims.py
    half = math.sqrt(squared * (coverage * (1 - coverage) + squared / 4))
    low, high = ((coverage + squared / 2 + side * half) / (1 + squared) for side in (-1, 1))
    ratio = bias / math.sqrt(variance)
    covered = f"{coverage:.2f} ({low:.2f} to {high:.2f})"
    return [f"{bias:+.3f}", f"{ratio:+.2f}", covered, f"{width:.2f}", f"{scores['CPU seconds']:.2f}"]


def _lines(corner: str, down: list[str], across: list[str], cells: dict[tuple[str, str], str]) -> str:
    lines = [[corner, *across], ["---"] * (len(across) + 1)]
    lines += [[one, *(cells.get((one, other), "") for other in across)] for one in down]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _name(setting: dict[str, Any], shared: dict[str, Any] | None = None) -> str:
    """Return a setting in words, without the parts that all settings share."""
    own = {key: value for key, value in setting.items() if key not in (shared or {})}
    return ", ".join(value if isinstance(value, str) else f"{key} = {value}" for key, value in own.items())


def _cell(row: dict[str, Any]) -> str:
    failed = f", {row['n_failed']} of {row['n_runs']} failed" if row["n_failed"] else ""
    paper = f" ({row['published']['mean']:g})" if _is_shown(row) else ""
    mean = "\N{EN DASH}" if row["mean"] is None else f"{row['mean']:.3f}"
    return f"{mean}{paper}{failed}"


def _is_shown(row: dict[str, Any]) -> bool:
    """Return whether a row has a number of a paper whose setting is the same."""
    return row["published"] is not None and not row["published"].get("other")


def _caption(results: dict[str, Any], rows: list[dict[str, Any]], shared: dict[str, Any]) -> str:
    """Return what the numbers are, and the command that produced them."""
    fewest, most = min(row["n_runs"] for row in rows), max(row["n_runs"] for row in rows)
    sentences = [f"Each number is the mean of {most} runs."]
    if most == 1:
        sentences = ["Each number is from a single run."]
    elif fewest < most:
        sentences = [f"Each number is a mean over runs, of which there are {fewest} to {most}."]
    if any(map(_is_shown, rows)):
        sentences.append("Numbers in brackets are those of the paper.")
    told = [f"{key} = {value}" for key, value in shared.items() if key != "plan"]  # which is the scale
    if told:
        sentences.append(f"These settings are the same in all runs: {', '.join(told)}.")
    command = f"python -m papers {results['experiment']} --scale {results['scale']}"
    repeat = f"Run `{command}` to repeat them; these were produced at {commit_of(results)}."
    return " ".join([*sentences, repeat])


def main() -> int:
    """Fill every page; return 1 if one was, or would be, changed by a check."""
    stale = []
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        page = path.read_text(encoding="utf-8")
        filled = fill(page)
        if filled != page:
            stale.append(path)
            if "--check" not in sys.argv:
                path.write_text(filled, encoding="utf-8")
    for path in stale:
        print(f"{path.relative_to(ROOT)}: {'is stale' if '--check' in sys.argv else 'written'}")
    return int(bool(stale) and "--check" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
