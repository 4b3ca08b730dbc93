"""The tables "claims of the paper", from papers/works and stored results; used by `docs/fill_tables.py`.

A file lists every figure, table and proposition of a work: its `place`, what it `says`, and what speaks about
it here. That is `evidence` (claims that experiments declare, by patterns of their texts), `tests` (of
identities), data that are `absent`, or the reason why it is `unjudged`. The state of an item follows from the
verdicts that are stored with the results, of the scale paper if it is stored, otherwise of small:

- *reproduced*: all of its claims are met, or it is an identity that is tested;
- *contradicted*: of its claims that were run none is met and at least one is not met;
- *in part*: some are met and others are not, undecided or not run;
- *undecided*: the intervals of all claims that were run contain zero, or there is one run only;
- *not run yet*: no stored result is about it;
- *not judged*: a picture, a summary or a list of settings, about which no claim can be tested;
- *not reproducible here*: data that cannot be had.
"""

import json
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

STATES = (
    "reproduced",
    "in part",
    "contradicted",
    "undecided",
    "not run yet",
    "not judged",
    "not reproducible here",
)
SCALES = ("paper", "small")  # the first that is stored counts
OUTCOMES = ("met", "not met", "undecided", "not testable")


@dataclass(frozen=True)
class ItemState:
    """The state of an item, the evidence for it in words, and where the results are from."""

    state: str
    evidence: str
    source: str = ""


def read_work(path: Path) -> dict[str, Any]:
    """Return the items of a work."""
    return tomllib.loads(path.read_text(encoding="utf-8"))


def is_meant(claim: str, patterns: Sequence[str]) -> bool:
    """Return whether one of the patterns, in which * is any text, is that of a claim."""
    return any(fnmatchcase(claim, pattern.replace("[", "[[]")) for pattern in patterns)


def item_state(item: dict[str, Any], root: Path) -> ItemState:
    """Return the state of one item by what is stored."""
    if "absent" in item:
        return ItemState("not reproducible here", f"{item['absent']} cannot be had here")
    if "unjudged" in item:
        return ItemState("not judged", item["unjudged"])
    if "evidence" in item:
        return _state_of_claims(item["evidence"], root)
    if "tests" in item:
        names = ", ".join(f"`{test.rpartition('::')[2]}`" for test in item["tests"])
        return ItemState("reproduced", f"tested: {names}")
    return ItemState("not run yet", "no experiment is about it")


def _state_of_claims(evidence: Sequence[dict[str, Any]], root: Path) -> ItemState:
    sources = []
    for part in evidence:
        stored = _stored(part["experiment"], root)
        meant = _outcomes(part, root)
        if stored is not None and set(meant) - {"not testable"}:
            sources.append(f"`{part['experiment']}`, {stored['scale']}, {commit_of(stored)}")
        else:
            sources.append(f"`{part['experiment']}`")
    counts = _count(evidence, root)
    return ItemState(_judge(counts), _count_words(counts), "; ".join(sources))


def _count(evidence: Sequence[dict[str, Any]], root: Path) -> Counter[str]:
    """Return how many of the claims that evidence names have which outcome."""
    return Counter(outcome for part in evidence for outcome in _outcomes(part, root))


def _outcomes(part: dict[str, Any], root: Path) -> list[str]:
    stored = _stored(part["experiment"], root)
    verdicts = [] if stored is None else stored["verdicts"]
    meant = [verdict["outcome"] for verdict in verdicts if is_meant(verdict["claim"], part["claims"])]
    return meant or ["not testable"]


def _judge(counts: Counter[str]) -> str:
    n_run = sum(counts.values()) - counts["not testable"]
    if n_run == 0:
        return "not run yet"
    if counts["met"] == sum(counts.values()):
        return "reproduced"
    if counts["met"]:
        return "in part"
    return "contradicted" if counts["not met"] else "undecided"


def _count_words(counts: Counter[str]) -> str:
    words = {outcome: outcome for outcome in OUTCOMES} | {"not testable": "not run"}
    return ", ".join(f"{counts[outcome]} {words[outcome]}" for outcome in OUTCOMES if counts[outcome])


def _stored(experiment: str, root: Path) -> dict[str, Any] | None:
    for scale in SCALES:
        path = root / "results" / f"{experiment}-{scale}.json"
        if path.exists():
            stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            return stored
    return None


def commit_of(results: dict[str, Any]) -> str:
    """Return the commits of stored runs in words; a plus sign marks changes that were not committed."""
    last = results["provenance"]["commit"]
    commits = list(dict.fromkeys(cell.get("commit", last) for cell in results.get("cells", ()))) or [last]
    changed = ", with changes that were not committed" if any(one.endswith("+") for one in commits) else ""
    return f"commit{'s' if len(commits) > 1 else ''} {' and '.join(one[:7] for one in commits)}{changed}"


def works_table(path: Path, root: Path) -> str:
    """Return all items of a work with their states, and how many there are of each state."""
    lines = [
        "| in the paper | what it says | state | our claims | stored result |",
        "|---|---|---|---|---|",
    ]
    found: Counter[str] = Counter()
    for item in read_work(path)["item"]:
        state = item_state(item, root)
        found[state.state] += 1
        place, says = item["place"], item["says"]
        lines.append(_line((place, says, f"**{state.state}**", _explained(item, state), state.source)))
    total = ", ".join(f"{found[state]} {state}" for state in STATES if found[state])
    return "\n".join([*lines, "", f"Of {found.total()} items: {total}."])


def states_table(folder: Path, root: Path) -> str:
    """Return a line for each work with how many of its items have which state, and the shares of all."""
    lines = [f"| work | items | {' | '.join(STATES)} |", f"|---|{'---|' * (len(STATES) + 1)}"]
    states: Counter[str] = Counter()
    claims: Counter[str] = Counter()
    for path in sorted(folder.glob("*.toml")):
        work = read_work(path)
        found = Counter(item_state(item, root).state for item in work["item"])
        states += found
        claims += _count([part for item in work["item"] for part in item.get("evidence", ())], root)
        numbers = [str(found.total()), *(str(found[state]) for state in STATES)]
        lines.append(f"| {work['work']} | {' | '.join(numbers)} |")
    return "\n".join([*lines, "", _shares(states, claims)])


OPEN = ("contradicted", "in part", "undecided", "not run yet", "not reproducible here")


def open_table(folder: Path, root: Path) -> str:
    """Return every item that is not reproduced, or not wholly, with its state and what is known about why."""
    lines = ["| work | in the paper | state | our claims, and why |", "|---|---|---|---|"]
    for path in sorted(folder.glob("*.toml")):
        work = read_work(path)
        found = [(item_state(item, root), item) for item in work["item"]]
        for state, item in sorted(found, key=lambda pair: (*OPEN, *STATES).index(pair[0].state)):
            if state.state in OPEN:
                cells = (work["short"], item["place"], f"**{state.state}**", _explained(item, state))
                lines.append(_line(cells))
    return "\n".join(lines)


def _explained(item: dict[str, Any], state: ItemState) -> str:
    return f"{state.evidence}. {item['note']}" if "note" in item else state.evidence


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _shares(states: Counter[str], claims: Counter[str]) -> str:
    """Return in words which share of items is reproduced and which share of claims is met."""
    n_judged = states.total() - states["not judged"] - states["not reproducible here"]
    n_run = states.total() - states["not run yet"] - (states.total() - n_judged)
    n_claims = claims.total() - claims["not testable"]
    items = f"Of {n_judged} items that can be judged with the data that are here, {n_run} were run or tested"
    reproduced = (
        f"and {_of(states['reproduced'], n_judged)} are reproduced; another {states['in part']} in part."
    )
    met = f"Of {n_claims} claims about them that were run, {_of(claims['met'], n_claims)} are met"
    rest = f"{claims['not met']} are not met and {claims['undecided']} undecided"
    return f"{items}, {reproduced} {met}, {rest}; {claims['not testable']} were not run."


def _of(part: int, whole: int) -> str:
    return f"{part} ({part / whole:.0%})" if whole else "none"
