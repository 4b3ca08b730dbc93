"""A curve of the variable sparsity problem as a figure."""

from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from halfseen.evaluation.sparsity import VSPCurve
from halfseen.report.figure_style import OURS, THEIRS, new_figure


def plot_vsp(curves: VSPCurve | dict[str, VSPCurve], title: str = "") -> Figure:
    """Plot mean predictions against the share of known values that was shown, with intervals.

    Parameters
    ----------
    curves : VSPCurve or dict of str to VSPCurve
        A curve, or two by name, such as those of a network with and without Sparsity Normalization.
    title : str
        The title of the figure.
    """
    named = curves if isinstance(curves, dict) else {"": curves}
    figure = new_figure(4.2, 2.8)
    axes = figure.add_subplot()
    for (name, curve), colour in zip(named.items(), (OURS, THEIRS), strict=False):
        axes.fill_between(curve.shares, curve.lows, curve.highs, color=colour, alpha=0.2, linewidth=0)
        axes.plot(curve.shares, curve.means, color=colour, marker="o", markersize=3, label=name)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set(xlabel="known values that are shown", ylabel="mean prediction", title=title)
    if len(named) > 1:
        axes.legend(frameon=False)
    return figure
