"""The structure of a circuit over columns, as a plain dict and as a picture of its first tree."""

from collections.abc import Sequence
from html import escape
from typing import Any

from halfseen.circuits.structure import Structure
from halfseen.report.describe_svg import squeeze

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
