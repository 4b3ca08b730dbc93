"""A summary as one self-contained HTML page: no script, no request, no font from elsewhere.

Also the structure of a circuit over columns, as a plain dict and as a picture of its first tree.
"""

from collections.abc import Sequence
from functools import partial
from html import escape
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from halfseen.base.catalogue import find_method
from halfseen.circuits.structure import Structure
from halfseen.report import svg
from halfseen.report.describe_svg import squeeze
from halfseen.report.summarize import impute_lines, judge_columns, sentence
from halfseen.words import Missingness, minus, share_words

MOST_COLUMNS = 60
"""A tree over more columns is described in words only."""

_LINE, _STEP = 20.0, 46.0  # height of a column's line, width of a level
_LETTER, _MARGIN = 6.9, 14.0


def summarize_structure(structure: Structure, names: Sequence[str]) -> dict[str, Any]:
    """Return the levels of a circuit in words, and the groups of its first tree.

    Parameters
    ----------
    structure : Structure
        Over the columns of a table, one region for each at the bottom of every tree.
    names : sequence of str
        The columns in the order of the structure.

    Returns
    -------
    dict
        ``words`` is the printed structure; ``levels`` has, for each level, the groups of regions of the first
        tree and the number of sums in a region.
    """
    n_regions, levels = structure.n_columns, []
    for level in structure.levels:
        groups = [group for group in level.groups if group[0] < n_regions]
        levels.append({"groups": [list(group) for group in groups], "n_sums": level.n_channels})
        n_regions = len(groups)
    return {
        "words": str(structure),
        "columns": list(names),
        "n_trees": structure.n_trees,
        "levels": levels,
        "drawn": len(names) <= MOST_COLUMNS,
    }


def draw_tree(summary: dict[str, Any]) -> str:
    """Draw a tree from its columns on the left to the whole table on the right, as inline SVG."""
    names = summary["columns"]
    left = _LETTER * max(len(squeeze(name)) for name in names) + _MARGIN
    order = _reading_order(summary)
    heights = {column: _LINE * (line + 0.5) for line, column in enumerate(order)}
    parts = [
        f'<text class="level" x="{left - 8:.1f}" y="{heights[column] + 4:.1f}" text-anchor="end">'
        f"{escape(squeeze(name))}</text>"
        for column, name in enumerate(names)
    ]
    ys, starts = [heights[column] for column in range(len(names))], [left] * len(names)
    for number, level in enumerate(summary["levels"]):
        x = left + _STEP * (number + 1)
        merged, begun = [], []
        for group in level["groups"]:
            y = sum(ys[region] for region in group) / len(group)
            if len(group) > 1:
                parts += _join([(starts[region], ys[region]) for region in group], x, y, level["n_sums"])
            merged.append(y)
            begun.append(x if len(group) > 1 else starts[group[0]])
        ys, starts = merged, begun
    width, height = left + _STEP * (len(summary["levels"]) + 0.5), _LINE * len(names)
    return (
        f'<svg class="picture" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" role="img" aria-label="The tree of the circuit">{"".join(parts)}</svg>'
    )


def _join(members: Sequence[tuple[float, float]], x: float, y: float, n_sums: int | None) -> list[str]:
    """Return lines from the members of a group to the dot where they are multiplied."""
    lines = [f'<path class="interval" d="M{start:.1f} {top:.1f}H{x:.1f}V{y:.1f}"/>' for start, top in members]
    sums = "" if n_sums is None else f", each with {n_sums} sums"
    title = f"{len(members)} regions are multiplied{sums}"
    return [
        *lines,
        f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="3.8"><title>{escape(title)}</title></circle>',
    ]


def _reading_order(summary: dict[str, Any]) -> list[int]:
    """Return the columns in an order in which no lines cross."""
    below = [[column] for column in range(len(summary["columns"]))]
    for level in summary["levels"]:
        below = [[column for region in group for column in below[region]] for group in level["groups"]]
    return [column for region in below for column in region]


MAX_COLUMNS = 60

_HIDING = (
    " The probability that a value is missing is modelled too, as a function of the value itself, so "
    "values are not assumed to be missing at random."
)


def render(
    summary: dict[str, Any], comparison: dict[str, Any] | None = None, comparison_panel: Markup | None = None
) -> str:
    """Return the HTML page of a summary made by `halfseen.report.summarize.summarize`.

    Parameters
    ----------
    summary : dict
        The summary.
    comparison : dict, optional
        The summary of a comparison on hidden cells, and its panel, both made by `halfseen.report.compare`.
    comparison_panel : Markup, optional
        The panel.

    Returns
    -------
    str
        One page; every name and value of the table is escaped.
    """
    name, assumption, hiding = _explain(summary["method"])
    verdicts = judge_columns(summary)
    return (
        _environment()
        .get_template("report.html.jinja")
        .render(
            summary=summary,
            lines=impute_lines(summary, verdicts),
            verdicts=verdicts[:MAX_COLUMNS],
            n_verdicts=len(verdicts),
            comparison=comparison,
            comparison_panel=comparison_panel,
            method=name,
            assumption=assumption,
            hiding=hiding,
            fills=[_describe(fill, summary) for fill in summary["fills"]],
            patterns=Markup(svg.pattern_grid(summary["patterns"]))
            if summary["patterns"]["columns"]
            else None,
            few=any(fill.get("cells") for fill in summary["fills"]),
            many=any(fill["chart"] and not fill.get("cells") for fill in summary["fills"]),
            rug=any(fill["chart"] == "histogram" and not fill["cells"] for fill in summary["fills"]),
            strips=_strips(summary["blocks"]),
            tree=_tree(summary.get("structure")),
        )
    )


def _explain(method: str) -> tuple[str, str, bool]:
    """Return the name of a method, what it does, and whether it models the missingness.

    A model of missingness other than the default comes after a colon.
    """
    base, _, assumed = method.partition(":")
    entry = find_method(base)
    default = entry.missingness[0]
    label = f"{entry.label} with self-masking" if assumed and default == Missingness.MAR else entry.label
    modelled = (assumed or default) != Missingness.MAR
    return label, entry.description + (_HIDING if modelled else ""), modelled


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("halfseen.report"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {
        "number": svg.number,
        "percent": svg.percent,
        "exact_percent": share_words,
        "count": _count,
        "points": lambda share: minus(f"{100 * share:+.1f}"),
        "duration": _duration,
        "sentence": lambda words: sentence(words) if words else "",
    }
    return environment


def _count(value: int) -> str:
    return svg.number(value, 16)


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _tree(structure: dict[str, Any] | None) -> Markup | None:
    return Markup(draw_tree(structure)) if structure and structure["drawn"] else None


def _strips(blocks: dict[str, Any]) -> list[tuple[str, Markup]]:
    return [
        (name, Markup(svg.strip(shares, blocks["edges"], name)))
        for name, shares in zip(blocks["columns"], blocks["shares"], strict=True)
    ]


def _describe(fill: dict[str, Any], summary: dict[str, Any]) -> dict[str, Any]:
    """Return a fill with its picture and the facts below it."""
    picture, facts = None, []
    if fill["chart"] == "histogram":
        picture = Markup(svg.histogram(fill))
        facts = _number_facts(fill, summary["level"], summary.get("weights"))
    elif fill["chart"] == "levels":
        picture = Markup(svg.level_bars(fill))
        if "top_probability" in fill:
            facts = [("Mean probability of the chosen level", svg.percent(fill["top_probability"]))]
    return {**fill, "picture": picture, "facts": facts}


def _number_facts(fill: dict[str, Any], level: float, weights: str | None) -> list[tuple[str, str]]:
    scale = fill["observed_sd"]
    apart = not svg.may_be_years(fill)
    facts = []
    if not fill["time"]:
        alike = partial(svg.number_to, unit=scale, apart=apart)
        weighted = "" if weights is None else f", weighted by {weights}"
        facts = [
            (
                f"Observed mean (sd){weighted}",
                f"{alike(fill['observed_mean'])} ({alike(scale)})",
            ),
            (
                f"Imputed mean (sd){weighted}",
                f"{alike(fill['imputed_mean'])} ({alike(fill['imputed_sd'])})",
            ),
        ]
    if fill.get("relative_width") is not None:
        width = "" if fill["time"] else f"{svg.number(fill['width'])} = "
        name = f"{svg.percent(level)} interval, median width"
        facts.append((name, f"{width}{svg.number(fill['relative_width'])} sd"))
    return facts
