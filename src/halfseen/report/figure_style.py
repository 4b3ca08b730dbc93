"""The look of figures: their colours, fonts and file format."""

import io
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # matplotlib is loaded when a figure is drawn
    from matplotlib.figure import Figure

OURS, THEIRS, QUIET, GRID = "#1f6fb2", "#c2571a", "#66717d", "#e3e8ee"
"""Colours of our numbers, of published ones, of secondary text and of grid lines."""

STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.edgecolor": "#d3dae2",
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "xtick.color": QUIET,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "halfseen",  # the same figure gives the same file
}
"""Settings of matplotlib for every figure."""


def new_figure(width: float, height: float) -> "Figure":
    """Return an empty figure of a size in inches."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        return Figure(figsize=(width, height), layout="constrained")


def to_svg(figure: "Figure") -> str:
    """Return a figure as the text of an SVG file, which is the same for the same figure."""
    import matplotlib as mpl

    file = io.StringIO()
    with mpl.rc_context(STYLE):
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    return file.getvalue()
