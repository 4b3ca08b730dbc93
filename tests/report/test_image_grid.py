"""The picture of imputed images: every pixel in its place, seen ones as they were."""

import base64
import io
import re
import struct
import zlib
from xml.etree import ElementTree

import numpy as np

from halfseen.report.image_grid import ImputedImages, draw_imputed_images, png

RGB = ((0, 0, 0), (10, 20, 30), (200, 100, 50))
NAMESPACE = "{http://www.w3.org/2000/svg}"


def read_png(content):
    """Returns the colours (H, W, 3) and opacity (H, W) of a palette PNG without filters."""
    file = io.BytesIO(content)
    assert file.read(8) == b"\x89PNG\r\n\x1a\n"
    chunks = {}
    while head := file.read(8):
        length, kind = struct.unpack(">I4s", head)
        chunks[kind] = file.read(length)
        assert struct.unpack(">I", file.read(4))[0] == zlib.crc32(kind + chunks[kind])
    assert (next(iter(chunks)), next(reversed(chunks))) == (b"IHDR", b"IEND")
    width, height, depth, colour = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    assert (depth, colour) == (8, 3)
    lines = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, width + 1)
    assert not lines[:, 0].any()  # no filter
    palette = np.frombuffer(chunks[b"PLTE"], np.uint8).reshape(-1, 3)
    return palette[lines[:, 1:]].astype(int), np.frombuffer(chunks[b"tRNS"], np.uint8)[lines[:, 1:]]


def sheets(picture):
    """Returns the images of a picture, as colours."""
    found = re.findall(r"data:image/png;base64,([^\"]+)", picture)
    return [read_png(base64.b64decode(one))[0] for one in found]


def toy():
    rng = np.random.default_rng(0)
    truth, draws = rng.random((2, 8, 9)) < 0.5, rng.random((3, 2, 8, 9)) < 0.5
    observed = np.broadcast_to(np.arange(9) < 4, (2, 8, 9))
    return ImputedImages("a & b", truth, observed, {"first": draws, "second": ~draws})


def test_a_png_holds_the_colours_of_its_entries():
    entries = np.array([[0, 1, 2], [2, 1, 0]], dtype=np.uint8)
    colours, opacity = read_png(png(entries, RGB, transparent=0))
    np.testing.assert_array_equal(colours, np.array(RGB)[entries])
    np.testing.assert_array_equal(opacity, np.where(entries == 0, 0, 255))


def test_there_is_a_sheet_for_the_image_what_was_seen_and_each_model():
    tree = ElementTree.fromstring(draw_imputed_images([toy(), toy()], "Title <1>"))
    texts = [element.text for element in tree.iter(f"{NAMESPACE}text")]
    assert texts[0] == "Title <1>"
    assert texts[2:] == 2 * ["a & b", "image", "seen", "first", "second"]
    widths = [float(element.get("width")) for element in tree.iter(f"{NAMESPACE}image")]
    assert widths == 2 * [22.0, 22.0, 66.0, 66.0]  # columns of 9 and 2 pixels, twice as large


def test_seen_pixels_are_black_or_white_everywhere_and_filled_ones_tell_the_draw():
    images = toy()
    plain, seen, first, _ = sheets(draw_imputed_images([images], ""))
    for n in range(2):
        for s in range(3):
            for h, w in np.ndindex(8, 9):
                tile = first[10 * n + h, 11 * s + w]
                ink = images.truth[n, h, w] if w < 4 else images.draws["first"][s, n, h, w]
                assert (tile.sum() < 400) == ink  # dark
                assert (tile[2] > tile[0] + 15) == (w >= 4 or ink)  # blue; the black is a blue one
                if w < 4:
                    assert (tile == plain[10 * n + h, w]).all()
                    assert (tile == seen[10 * n + h, w]).all()
    hidden = seen[:8, 4:9].reshape(-1, 3)
    assert (hidden == hidden[0]).all()  # tells nothing of the truth
