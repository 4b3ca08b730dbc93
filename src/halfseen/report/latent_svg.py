"""Pictures of latent-variable models as self-contained SVG: posteriors on a grid, curves of what hides cells.

Colours are those of the page where it defines them, and sensible ones where it does not.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from html import escape
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from halfseen.evaluation.latent_diagnostics import Divergences, PosteriorGrid
from halfseen.nn.mask_models import MaskModel
from halfseen.report.describe_svg import squeeze
from halfseen.report.svg import moment, nice_ticks, number, percent

Floats = npt.NDArray[np.float64]
Labeller = Callable[[float], str]

CONTOURS = (0.5, 0.95)
"""The shares of the true posterior that its contours enclose."""

_SIDE, _GAP, _LEFT, _TOP, _UNDER = 168.0, 22.0, 40.0, 30.0, 46.0
_SMALL, _BETWEEN = 104.0, 7.0  # panels of a table of posteriors
_SHADES, _CELLS = 8, 56  # levels of opacity, and cells of a panel: more cannot be told apart
_KEPT = 0.999  # the share of both posteriors that a panel must show
_WIDTH, _HEIGHT, _PER_LINE, _STEPS = 214.0, 120.0, 3, 121
_STYLE = """<style>
.hs-latent text{font:11.5px system-ui,-apple-system,"Segoe UI",Roboto,Arial,sans-serif}
.hs-latent text{fill:var(--soft,currentColor)}
.hs-latent .hs-name{font-size:12.5px;font-weight:600;fill:var(--ink,currentColor)}
.hs-latent .hs-p{fill:var(--observed-strong,#2f6ea5)}.hs-latent .hs-q{fill:var(--imputed,#c8590b)}
.hs-latent .hs-contour{fill:none;stroke:var(--observed-strong,#2f6ea5);stroke-width:1.3;stroke-linecap:round}
.hs-latent .hs-curve{fill:none;stroke:var(--missing,#c8590b);stroke-width:2;stroke-linejoin:round}
.hs-latent .hs-truth{fill:none;stroke:var(--soft,currentColor);stroke-width:1.2;stroke-dasharray:4 3}
.hs-latent .hs-area{fill:var(--missing,#c8590b);opacity:.13}
.hs-latent .hs-frame{fill:none;stroke:var(--faint,#8b95a1)}
.hs-latent .hs-paper{fill:var(--paper,#fff)}
.hs-latent .hs-grid{stroke:var(--faint,#8b95a1);opacity:.3}
</style>"""


def posterior_figure(grids: Sequence[PosteriorGrid], labels: Sequence[str] | None = None) -> str:
    """Draw posteriors of rows as small multiples: what is true, the encoder's, and that resampled.

    Each line is a row of the table, each panel a density over two latents, the darker the higher, on one
    scale along the line. The contours of the true posterior are in every panel of its line.

    Parameters
    ----------
    grids : sequence of PosteriorGrid
        One for each row, over two latents.
    labels : sequence of str, optional
        What the rows are.
    """
    names = [f"row {place + 1}" for place in range(len(grids))] if labels is None else list(labels)
    if len(grids) == 0 or len(names) != len(grids):
        raise ValueError(f"Needs one row or more and as many labels, got {len(grids)} and {len(names)}.")
    if any(one.grid.n_latent != 2 for one in grids):
        raise ValueError("Posteriors are drawn over two latents; these have one.")
    width = _LEFT + 3 * (_SIDE + _GAP)
    heads = ("true posterior", "encoder", "encoder, resampled")
    parts = [_text("hs-name", _LEFT + place * (_SIDE + _GAP), 14, head) for place, head in enumerate(heads)]
    for line, (found, name) in enumerate(zip(grids, names, strict=True)):
        parts += _posterior_line(found, name, _TOP + line * (_SIDE + _UNDER))
    return _svg(parts, "Posteriors of latents", width, _TOP + len(grids) * (_SIDE + _UNDER))


def _posterior_line(found: PosteriorGrid, name: str, top: float) -> list[str]:
    shape = (found.grid.n_points,) * 2
    panels = [one.exp().view(shape).numpy() for one in (found.log_p, found.log_q, found.log_q_weighted)]
    low, high = _window(panels[0] + panels[1])
    shown = [panel[low[0] : high[0], low[1] : high[1]] for panel in panels]
    axis, cell = found.grid.axis.numpy(), (found.grid.bounds[1] - found.grid.bounds[0]) / found.grid.n_points
    starts = [float(axis[low[side]]) - cell / 2 for side in (0, 1)]
    span = cell * (high[0] - low[0])
    contours = "".join(_contour(shown[0], _enclosing(panels[0], share)) for share in CONTOURS)
    peak = max(float(_pooled(panel, _CELLS)[0].max()) for panel in shown)
    words = (squeeze(name), _divergence_words(found.encoder), _divergence_words(found.weighted))
    titles = (f"{name}: true posterior", *map(_divergence_title, (found.encoder, found.weighted)))

    parts = []
    for place, (panel, shade) in enumerate(zip(shown, ("hs-p", "hs-q", "hs-q"), strict=True)):
        left = _LEFT + place * (_SIDE + _GAP)
        parts += [
            f'<g transform="translate({left:.1f} {top:.1f})"><title>{escape(titles[place])}</title>',
            _shaded(panel, peak, shade),
            f'<path class="hs-contour" d="{contours}"/>',
            f'<rect class="hs-frame" width="{_SIDE:.0f}" height="{_SIDE:.0f}"/>',
            *_square_ticks(starts, span, with_y=place == 0),
            _text("hs-words", _SIDE / 2, _SIDE + 32, words[place], anchor="middle"),
            "</g>",
        ]
    return parts


def posterior_table_figure(
    posteriors: Mapping[str, Floats], bounds: tuple[float, float], rows: Sequence[str]
) -> str:
    r"""Draw posteriors of the same rows under several models, a line for each model.

    A row has three panels: the posterior given all of it, that given what is seen of it, and the encoder's,
    with contours of the second in the last two. All show the same part of the model's own latent space.

    Parameters
    ----------
    posteriors : mapping of str to array
        From a model to probabilities (R, 3, G, G) of equal cells of latents.
    bounds : tuple of float
        Where cells begin and end, on each axis.
    rows : sequence of str
        What the R rows are.
    """
    if not posteriors or any(one.shape[:2] != (len(rows), 3) for one in posteriors.values()):
        shapes = {name: one.shape for name, one in posteriors.items()}
        raise ValueError(f"Needs three posteriors of each of {len(rows)} rows, got {shapes}.")
    step = 3 * _SMALL + 2 * _BETWEEN + _GAP
    left = 8.4 * max(map(len, posteriors)) + 18
    width, height = left + len(rows) * step, 60 + len(posteriors) * (_SMALL + 30)
    parts = [f'<rect class="hs-paper" width="{width:.0f}" height="{height:.0f}"/>']
    for place, row in enumerate(rows):
        x = left + place * step
        parts.append(_text("hs-name", x, 14, row))
        for panel, head in enumerate(("from all cells", "from those seen", "encoder")):
            parts.append(_text("hs-tick", x + panel * (_SMALL + _BETWEEN), 32, head))
    for line, (name, densities) in enumerate(posteriors.items()):
        y = 40 + line * (_SMALL + 30)
        parts.append(_text("hs-name", left - 10, y + _SMALL / 2 + 4, name, anchor="end"))
        for place, three in enumerate(densities.astype(np.float64)):
            parts += _three_panels(three, bounds, left + place * step, y)
    shares = " and ".join(f"{share:.0%}" for share in CONTOURS)
    words = (
        f"Darker is likelier. Contours: {shares} of the posterior from cells seen. Squares: one unit. JS: "
    )
    parts.append(_text("hs-tick", left, height - 10, words + "Jensen-Shannon divergence of the encoder."))
    return _svg(parts, "Posteriors of latents", width, height)


def _three_panels(three: Floats, bounds: tuple[float, float], left: float, top: float) -> list[str]:
    whole, partly, encoder = three
    low, high = _window(whole + partly + encoder)
    shown = [one[low[0] : high[0], low[1] : high[1]] for one in three]
    cell = (bounds[1] - bounds[0]) / len(whole)
    starts, span = [bounds[0] + cell * first for first in low], cell * (high[0] - low[0])
    contours = "".join(_contour(shown[1], _enclosing(partly, share)) for share in CONTOURS)
    peak = max(float(_pooled(one, _CELLS)[0].max()) for one in shown[1:])
    peaks = (float(_pooled(shown[0], _CELLS)[0].max()), peak, peak)
    found = Divergences.between(*(torch.from_numpy(one).flatten().log() for one in (encoder, partly)))
    parts = []
    for place, (one, shade) in enumerate(zip(shown, ("hs-p", "hs-p", "hs-q"), strict=True)):
        x = left + place * (_SMALL + _BETWEEN)
        parts += [
            f'<g transform="translate({x:.1f} {top:.1f}) scale({_SMALL / _SIDE:.4f})">',
            *_square_lines(starts, span),
            _shaded(one, peaks[place], shade),
            f'<path class="hs-contour" d="{contours if place else ""}"/>',
            f'<rect class="hs-frame" width="{_SIDE:.0f}" height="{_SIDE:.0f}"/></g>',
        ]
    x = left + 2 * (_SMALL + _BETWEEN)
    parts.append(_text("hs-tick", x, top + _SMALL + 14, f"JS {number(found.jsd, 2)}"))
    return parts


def _square_lines(starts: Sequence[float], span: float) -> list[str]:
    """Draw lines at whole numbers, which tell how large a window is."""
    lines = []
    for side, start in enumerate(starts):
        for tick in range(math.ceil(start), math.floor(start + span) + 1):
            at = _SIDE * (tick - start) / span
            path = f"M{at:.1f} 0v{_SIDE:.0f}" if side == 0 else f"M0 {_SIDE - at:.1f}h{_SIDE:.0f}"
            lines.append(f'<path class="hs-grid" d="{path}"/>')
    return lines


def _divergence_words(found: Divergences) -> str:
    return f"KL {number(found.kl_qp, 2)}, reverse {number(found.kl_pq, 2)}, JS {number(found.jsd, 2)}"


def _divergence_title(found: Divergences) -> str:
    return (
        f"Kullback-Leibler divergence of this from the true posterior {number(found.kl_qp)}, of the true "
        f"posterior from this {number(found.kl_pq)}, Jensen-Shannon {number(found.jsd)}"
    )


def _window(mass: Floats) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the first and last cells of the smallest square that holds most of the mass on each axis."""
    size = len(mass)
    ends = []
    for axis in (1, 0):
        cumulated = mass.sum(axis=axis).cumsum() / mass.sum()
        tail = (1 - _KEPT) / 2
        ends.append([int(np.searchsorted(cumulated, share)) for share in (tail, 1 - tail)])
    side = min(size, int(1.25 * max(stop - start + 1 for start, stop in ends)) + 2)
    first = [min(max((start + stop + 1 - side) // 2, 0), size - side) for start, stop in ends]
    return (first[0], first[1]), (first[0] + side, first[1] + side)


def _pooled(panel: Floats, at_most: int) -> tuple[Floats, float]:
    """Return means of square blocks of cells, at most so many along a side, and the side of a block drawn.

    The last blocks may be cut: they have fewer cells, but are drawn in full.
    """
    block = -(-len(panel) // at_most)
    starts = np.arange(0, len(panel), block)
    sums = np.add.reduceat(np.add.reduceat(panel, starts, axis=0), starts, axis=1)
    sizes = np.diff(np.append(starts, len(panel)))
    return sums / (sizes[:, None] * sizes), _SIDE * block / len(panel)


def _shaded(panel: Floats, peak: float, shade: str) -> str:
    """Draw cells as runs of one opacity; a square root makes the tails visible."""
    pooled, side = _pooled(panel, _CELLS)
    levels = np.ceil(_SHADES * np.sqrt(pooled / peak) - 0.5).clip(0, _SHADES).astype(int)
    paths: dict[int, list[str]] = {}
    for j, line in enumerate(levels.T):
        edges = np.flatnonzero(np.diff(line, prepend=-1, append=-1))
        for start, stop in pairwise(edges):
            if line[start] > 0:
                run = f"M{start} {j}h{stop - start}v1h{start - stop}z"
                paths.setdefault(int(line[start]), []).append(run)
    drawn = "".join(
        f'<path opacity="{level / _SHADES:.2f}" d="{"".join(runs)}"/>'
        for level, runs in sorted(paths.items())
    )
    return (  # an inner picture, because it cuts what the last blocks have too much
        f'<svg width="{_SIDE:.0f}" height="{_SIDE:.0f}"><g class="{shade}" '
        f'shape-rendering="crispEdges" transform="translate(0 {_SIDE:.0f}) scale({side:.4f} {-side:.4f})">'
        f"{drawn}</g></svg>"
    )


def _enclosing(mass: Floats, share: float) -> float:
    """Return the level above which cells hold a share of the mass."""
    ranked = np.sort(mass, axis=None)[::-1]
    return float(ranked[min(int(np.searchsorted(ranked.cumsum(), share * ranked.sum())), ranked.size - 1)])


def _contour(panel: Floats, level: float) -> str:
    """Return the lines where a density between the middles of cells is at a level, by marching squares."""
    panel, side = _pooled(panel, 2 * _CELLS)
    above = panel > level
    corners = above[:-1, :-1].astype(int) + above[1:, :-1] + above[1:, 1:] + above[:-1, 1:]
    parts = []
    for i, j in np.argwhere((corners > 0) & (corners < 4)):
        around = [(i, j), (i + 1, j), (i + 1, j + 1), (i, j + 1)]
        points = []
        for start, stop in zip(around, around[1:] + around[:1], strict=True):
            if above[start] != above[stop]:
                t = (level - panel[start]) / (panel[stop] - panel[start])
                x, y = (a + t * (b - a) + 0.5 for a, b in zip(start, stop, strict=True))
                points.append(f"{side * x:.1f} {_SIDE - side * y:.1f}")
        parts += [f"M{points[k]}L{points[k + 1]}" for k in range(0, len(points), 2)]
    return "".join(parts)


def _square_ticks(starts: Sequence[float], span: float, *, with_y: bool) -> list[str]:
    parts = []
    for tick in nice_ticks(starts[0], starts[0] + span, 4):
        x = _SIDE * (tick - starts[0]) / span
        parts.append(f'<line class="hs-grid" x1="{x:.1f}" y1="0" x2="{x:.1f}" y2="{_SIDE:.0f}"/>')
        parts.append(_text("hs-tick", x, _SIDE + 15, number(tick), anchor="middle"))
    for tick in nice_ticks(starts[1], starts[1] + span, 4):
        y = _SIDE - _SIDE * (tick - starts[1]) / span
        parts.append(f'<line class="hs-grid" x1="0" y1="{y:.1f}" x2="{_SIDE:.0f}" y2="{y:.1f}"/>')
        parts += [_text("hs-tick", -6, y + 4, number(tick), anchor="end")] if with_y else []
    return parts


def mask_curves_figure(
    mask_model: MaskModel,
    names: Sequence[str],
    ranges: Sequence[tuple[float, float] | None],
    *,
    loc: Sequence[float] | None = None,
    scale: Sequence[float] | None = None,
    dates: Collection[str] = (),
    steps: Sequence[float] | None = None,
) -> str:
    """Draw the probability that a cell is missing, by its own value, for each column of numbers.

    For a model that is not self-masking, the other features are zero, that is, at their means.

    Parameters
    ----------
    mask_model : MaskModel
        What was learned; columns whose mask it does not model are left out.
    names : sequence of str
        Of the C columns.
    ranges : sequence of (float, float) or None
        The lowest and highest value to show of each column, in the units of the table; None to leave it out,
        as must be for columns with levels.
    loc, scale : sequence of float, optional
        Of each column: a value is the feature (value - loc) / scale. By default values are features.
    dates : collection of str
        The columns whose values are seconds since 1970.
    steps : sequence of float, optional
        Of each column, the value above which cells are missing in truth; drawn as a dashed step.
    """
    n_columns = mask_model.n_columns
    loc, scale = [0.0] * n_columns if loc is None else loc, [1.0] * n_columns if scale is None else scale
    if any(len(given) != n_columns for given in (names, ranges, loc, scale)):
        raise ValueError(f"names, ranges, loc and scale must have one entry for each of {n_columns} columns.")
    modelled = mask_model.layout.columns
    parts, place = [], 0
    for column, ends in enumerate(ranges):
        if ends is None or (modelled is not None and column not in modelled):
            continue
        if not ends[0] < ends[1]:
            raise ValueError(f"The range of column {names[column]!r} must rise, got {ends}.")
        values = np.linspace(*ends, _STEPS)
        missing = _missing_given(mask_model, column, names[column], (values - loc[column]) / scale[column])
        x = (_WIDTH + _GAP) * (place % _PER_LINE) + _LEFT
        y = (_HEIGHT + _UNDER + 14) * (place // _PER_LINE) + _TOP
        is_date, with_y = names[column] in dates, place % _PER_LINE == 0
        curve = _curve(names[column], values, missing, is_date=is_date, with_y=with_y)
        curve += [] if steps is None else [_step((steps[column] - ends[0]) / (ends[1] - ends[0]))]
        parts += [f'<g transform="translate({x:.1f} {y:.1f})">', *curve, "</g>"]
        place += 1
    if place == 0:
        raise ValueError("No column is left to draw: none has both a range and a modelled mask.")
    width = _LEFT + (_WIDTH + _GAP) * min(place, _PER_LINE)
    height = _TOP + (_HEIGHT + _UNDER + 14) * -(-place // _PER_LINE) - 14
    return _svg(parts, "How likely cells are missing, by their value", width, height)


@torch.no_grad()
def _missing_given(mask_model: MaskModel, column: int, name: str, values: Floats) -> Floats:
    """Return the probability of a missing cell at some values of its feature."""
    features = [place for place, owner in enumerate(mask_model.layout.column_of_feature) if owner == column]
    if len(features) != 1:
        raise ValueError(
            f"Column {name!r} has {len(features)} features, not one number: give None as its range."
        )
    dtype = next((parameter.dtype for parameter in mask_model.parameters()), torch.float64)
    x = torch.zeros(len(values), mask_model.n_features, dtype=dtype)
    x[:, features[0]] = torch.from_numpy(values).to(dtype)
    missing: Tensor = torch.sigmoid(-mask_model.logits(x)[:, column]).double()
    return np.asarray(missing.numpy())


def _labelled_ticks(low: float, high: float, *, is_date: bool) -> tuple[list[float], Labeller]:
    """Return where to put ticks, and how to write values: with as few digits as tell ticks exactly."""
    span = high - low
    if is_date:
        return [low + span * part for part in (0.14, 0.5, 0.86)], lambda value: moment(value, span)
    ticks = nice_ticks(low, high, 4)
    digits = 1
    while digits < 15 and any(abs(float(f"{tick:.{digits - 1}e}") - tick) > 1e-6 * span for tick in ticks):
        digits += 1
    return ticks, lambda value: number(value, digits)


def _curve(name: str, values: Floats, missing: Floats, *, is_date: bool, with_y: bool) -> list[str]:
    low, high = float(values[0]), float(values[-1])
    ticks, label = _labelled_ticks(low, high, is_date=is_date)
    xs, ys = _WIDTH * (values - low) / (high - low), _HEIGHT * (1 - missing)
    line = "L".join(f"{x:.1f} {y:.1f}" for x, y in zip(xs, ys, strict=True))
    words = ", ".join(
        f"{percent(float(missing[at]))} missing at {label(float(values[at]))}" for at in (0, _STEPS // 2, -1)
    )
    parts = [f"<title>{escape(f'{name}: {words}')}</title>", _text("hs-name", 0, -9, squeeze(name))]
    for share in (0.0, 0.5, 1.0):
        y = _HEIGHT * (1 - share)
        parts.append(f'<line class="hs-grid" x1="0" y1="{y:.1f}" x2="{_WIDTH:.0f}" y2="{y:.1f}"/>')
        parts += [_text("hs-tick", -6, y + 4, percent(share), anchor="end")] if with_y else []
    for tick in ticks:
        x = _WIDTH * (tick - low) / (high - low)
        parts.append(f'<line class="hs-frame" x1="{x:.1f}" y1="{_HEIGHT}" x2="{x:.1f}" y2="{_HEIGHT + 4}"/>')
        parts.append(_text("hs-tick", x, _HEIGHT + 17, label(tick), anchor="middle"))
    parts.append(f'<path class="hs-area" d="M{line}V{_HEIGHT:.0f}H0z"/><path class="hs-curve" d="M{line}"/>')
    return parts


def _step(share: float) -> str:
    """Draw a step from 0 to 1 after a share of the axis."""
    x = _WIDTH * min(max(share, 0.0), 1.0)
    return f'<path class="hs-truth" d="M0 {_HEIGHT:.0f}H{x:.1f}V0H{_WIDTH:.0f}"/>'


def _text(shade: str, x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text class="{shade}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg(parts: Sequence[str], title: str, width: float, height: float) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="hs-latent" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" role="img" aria-label="{escape(title)}">'
        f"{_STYLE}{''.join(parts)}</svg>"
    )
