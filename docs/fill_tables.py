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

The benchmark against other tools has tables of its own, of all scores:

    <!-- peers of results/peers-SCALE.json: MECHANISM; MECHANISM -->
    <!-- end of table -->

one of mean ranks over all tables and mechanisms, which begins with `ranks` in place of `peers`, and one of
distances to the best of the others for each table, which begins with `behind`, or with `behind tools` if
other methods of halfseen are left out. What `benchmarks/compare_target.py` found, on tables that are named
or on all of them:

    <!-- choices of results/compare_target.json: all -->
    <!-- end of table -->
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

from peers_table import behind_table, behind_tools_table, peers_tables, ranks_table

ROOT = Path(__file__).parents[1]
PEERS = {
    "peers": peers_tables,
    "ranks": ranks_table,
    "behind": behind_table,
    "behind tools": behind_tools_table,
}
PLACE = re.compile(
    r"(<!-- (table|scores|peers|ranks|behind|behind tools|choices) of (results/[\w.-]+\.json): (.+?) -->\n)"
    r".*?(<!-- end of table -->)",
    re.DOTALL,
)


def fill(page: str, root: Path = ROOT) -> str:
    """Return a page with its tables as the results are now."""

    def table(found: re.Match[str]) -> str:
        start, form, file, named, stop = found.groups()
        results = json.loads((root / file).read_text(encoding="utf-8"))
        scores = [score.strip() for score in named.split(";")]
        if form in PEERS:
            chosen = [record for record in results["records"] if record["mechanism"] in scores]
            return start + PEERS[form](results | {"records": chosen}) + "\n" + stop
        if form == "choices":
            option = " --others" if "others" in file else ""
            return start + _choices(results, scores, option) + "\n" + stop
        rows = [row for row in results["summary"] if row["metric"] in scores]
        shared = _shared(rows)
        if form == "scores":
            tables = [_score_table(results, scores)]
        else:
            tables = [_table(results, score, shared) for score in scores]
        return start + "\n\n".join([*tables, _caption(results, rows, shared)]) + "\n" + stop

    return PLACE.sub(table, page)


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
    paper = "" if row["published"] is None else f" ({row['published']['mean']:g})"
    mean = "\N{EN DASH}" if row["mean"] is None else f"{row['mean']:.3f}"
    return f"{mean}{paper}{failed}"


def _caption(results: dict[str, Any], rows: list[dict[str, Any]], shared: dict[str, Any]) -> str:
    """Return what the numbers are, and the command that produced them."""
    fewest, most = min(row["n_runs"] for row in rows), max(row["n_runs"] for row in rows)
    sentences = [f"Each number is the mean of {most} runs."]
    if most == 1:
        sentences = ["Each number is from a single run."]
    elif fewest < most:
        sentences = [f"Each number is a mean over runs, of which there are {fewest} to {most}."]
    if any(row["published"] is not None for row in rows):
        sentences.append("Numbers in brackets are those of the paper.")
    told = [f"{key} = {value}" for key, value in shared.items() if key != "plan"]  # which is the scale
    if told:
        sentences.append(f"These settings are the same in all runs: {', '.join(told)}.")
    command = f"python -m papers {results['experiment']} --scale {results['scale']}"
    commit = results["provenance"]["commit"][:7]
    return " ".join([*sentences, f"Run `{command}` to repeat them; these were produced at commit {commit}."])


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
