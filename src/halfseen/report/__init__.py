"""Reports: results are summarised as a plain dict, which is rendered as one self-contained page.

`plot_flux` and `plot_patterns` draw how the columns of a table are connected, and its missingness patterns.
"""

from typing import TYPE_CHECKING

from halfseen._lazy import lazy_names

if TYPE_CHECKING:
    from halfseen.report.figures import plot_flux, plot_patterns

__all__ = ["plot_flux", "plot_patterns"]
if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, {"figures": ["plot_flux", "plot_patterns"]})
