"""Imputed images as one picture: the original, what was seen of it, and draws of the rest side by side."""

import base64
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
import numpy.typing as npt

Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]

_GROUND, _INK, _HOLE, _FILLED_GROUND, _FILLED_INK, _BETWEEN = range(6)
_PALETTE = ((255, 255, 255), (29, 39, 51), (200, 209, 219), (226, 238, 249), (31, 111, 178), (0, 0, 0))
_SCALE, _SPACE = 2, 2  # of a pixel, and pixels between images
_GAP, _MARGIN, _TOP, _HEAD, _FOOT = 14.0, 16.0, 52.0, 42.0, 12.0
_LEGEND = "Black was seen, grey is missing, blue was drawn by the models."
_STYLE = """
svg { font: 12px system-ui, sans-serif; background: #fff; } text { fill: #1d2733; }
.title { font-size: 15px; font-weight: 600; } .head { font-weight: 600; } .quiet { fill: #66717d; }
image { image-rendering: pixelated; }
@media (prefers-color-scheme: dark) {
svg { background: #14191f; } text { fill: #e8edf2; } .quiet { fill: #9aa6b2; }
}
"""


@dataclass(frozen=True)
class ImputedImages:
    """Some binary images, what was seen of them, and draws by several models.

    Shapes
    ------
    truth, observed : :math:`(N, H, W)`
    draws : :math:`(S, N, H, W)`, by the name of the model
    """

    name: str
    truth: Bools
    observed: Bools
    draws: Mapping[str, Bools]


def draw_imputed_images(sets: Sequence[ImputedImages], title: str) -> str:
    """Returns an SVG file with a table for each set: an image in each line, then columns of its draws.

    Pixels are dark where True. What models filled in is blue, on a ground of light blue.

    Examples
    --------
    >>> image = np.eye(8, dtype=bool)[None]
    >>> half = np.arange(64).reshape(1, 8, 8) < 32
    >>> picture = draw_imputed_images([ImputedImages("toy", image, half, {"model": image[None]})], "Toys")
    >>> picture.count("<image")
    3
    """
    parts = [
        _text("title", _MARGIN, 26, title),
        _text("quiet", _MARGIN, 44, _LEGEND),
    ]
    width, y = 2 * _MARGIN + max(9.0 * len(title), 7.0 * len(_LEGEND)), _TOP
    for images in sets:
        parts.append(_text("head", _MARGIN, y + 18, images.name))
        x, height = _MARGIN, 0.0
        for heading, columns in _groups(images).items():
            sheet = _sheet(columns)
            size = (_SCALE * sheet.shape[1], _SCALE * sheet.shape[0])
            parts.append(_text("quiet", x, y + _HEAD - 7, heading))
            parts.append(_image(sheet, x, y + _HEAD, size))
            x += max(size[0], 7.0 * len(heading)) + _GAP
            height = max(height, size[1])
        width, y = max(width, x), y + _HEAD + height + _FOOT
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {y:.0f}" width="{width:.0f}" '
        f'height="{y:.0f}" role="img" aria-label="{escape(title)}"><style>{_STYLE}</style>'
        f"{''.join(parts)}</svg>\n"
    )


def _groups(images: ImputedImages) -> dict[str, Bytes]:
    """Returns columns (K, N, H, W) of palette entries under each heading."""
    plain = np.where(images.truth, _INK, _GROUND)
    groups = {"image": plain[None], "seen": np.where(images.observed, plain, _HOLE)[None]}
    for name, draws in images.draws.items():
        groups[name] = np.where(images.observed, plain, np.where(draws, _FILLED_INK, _FILLED_GROUND))
    return {name: columns.astype(np.uint8) for name, columns in groups.items()}


def _sheet(columns: Bytes) -> Bytes:
    """Returns columns (K, N, H, W) as one image, with some space between."""
    after = ((0, 0), (0, 0), (0, _SPACE), (0, _SPACE))
    spaced = np.pad(columns, after, constant_values=_BETWEEN)
    n_columns, n_rows, height, width = spaced.shape
    return spaced.transpose(1, 2, 0, 3).reshape(n_rows * height, n_columns * width)


def _image(sheet: Bytes, x: float, y: float, size: tuple[float, float]) -> str:
    content = base64.b64encode(png(sheet, _PALETTE, transparent=_BETWEEN)).decode()
    return (
        f'<image x="{x:.1f}" y="{y:.1f}" width="{size[0]}" height="{size[1]}" '
        f'href="data:image/png;base64,{content}"/>'
    )


def png(entries: Bytes, palette: Sequence[tuple[int, int, int]], transparent: int) -> bytes:
    """Returns a PNG file of palette entries (H, W), one of which is transparent.

    References
    ----------
    Portable Network Graphics (PNG) specification, W3C recommendation (2003), sections 5 and 11.
    """
    height, width = entries.shape
    lines = np.pad(entries, ((0, 0), (1, 0)))  # each line begins with its filter: none
    alpha = bytes(0 if entry == transparent else 255 for entry in range(len(palette)))
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        (b"PLTE", bytes(value for colour in palette for value in colour)),
        (b"tRNS", alpha),
        (b"IDAT", zlib.compress(lines.tobytes(), 9)),
        (b"IEND", b""),
    )
    body = b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + body


def _text(shade: str, x: float, y: float, text: str) -> str:
    return f'<text class="{shade}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'
