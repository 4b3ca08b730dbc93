"""Readers of NORB and TIMIT, on small files in the published formats that the tests make."""

import gzip
import struct

import numpy as np
import pytest

from halfseen.datasets import DataSetError, phoneme_windows, read_norb, read_timit
from halfseen.datasets.corpora import NORB_FILES, Utterance


def matrix(array, magic):
    """The bytes of a binary matrix, with at least three sizes in its header."""
    sizes = [*array.shape, *[1] * (3 - array.ndim)]
    return struct.pack(f"<{2 + len(sizes)}i", magic, array.ndim, *sizes) + array.tobytes()


def write_norb(folder, n=3, compress=False):
    rng = np.random.default_rng(0)
    parts = {
        "dat": (rng.integers(0, 256, (n, 2, 4, 5)).astype("u1"), 0x1E3D4C55),
        "cat": (np.arange(n, dtype="<i4") % 5, 0x1E3D4C54),
        "info": (np.arange(4 * n, dtype="<i4").reshape(n, 4), 0x1E3D4C54),
    }
    for kind, (array, magic) in parts.items():
        content = matrix(array, magic)
        path = folder / f"{NORB_FILES['train']}-{kind}.mat{'.gz' if compress else ''}"
        path.write_bytes(gzip.compress(content) if compress else content)
    return {kind: array for kind, (array, _) in parts.items()}


@pytest.mark.parametrize("compress", [False, True])
def test_the_three_files_of_norb_are_read(tmp_path, compress):
    parts = write_norb(tmp_path, compress=compress)
    found = read_norb(tmp_path)
    np.testing.assert_array_equal(found.images, parts["dat"])
    np.testing.assert_array_equal(found.category, parts["cat"])
    np.testing.assert_array_equal(found.info, parts["info"])


def test_files_of_norb_that_do_not_fit_are_refused(tmp_path):
    with pytest.raises(DataSetError, match=r"There is no file .*-dat\.mat"):
        read_norb(tmp_path)
    with pytest.raises(DataSetError, match="part must be 'train' or 'test', got 'validation'"):
        read_norb(tmp_path, "validation")
    write_norb(tmp_path)
    images = tmp_path / f"{NORB_FILES['train']}-dat.mat"
    good = images.read_bytes()
    images.write_bytes(good[:-1])
    with pytest.raises(
        DataSetError, match=r"has 143 bytes, but its header of sizes \[3, 2, 4, 5\] needs 144"
    ):
        read_norb(tmp_path)
    images.write_bytes(b"PK\x03\x04" + good[4:])
    with pytest.raises(DataSetError, match="is not a binary matrix"):
        read_norb(tmp_path)
    images.write_bytes(matrix(np.zeros((2, 2, 4, 5), "u1"), 0x1E3D4C55))
    with pytest.raises(DataSetError, match="do not belong together"):
        read_norb(tmp_path)
    images.write_bytes(matrix(np.zeros((3, 1, 4, 5), "u1"), 0x1E3D4C55))
    with pytest.raises(DataSetError, match=r"shape \(n, 2, H, W\), got \(3, 1, 4, 5\)"):
        read_norb(tmp_path)


def sphere(samples, order="01", **changes):
    fields = {"channel_count": "-i 1", "sample_count": f"-i {len(samples)}", "sample_rate": "-i 16000"}
    fields |= {"sample_n_bytes": "-i 2", "sample_byte_format": f"-s2 {order}"} | changes
    lines = [f"{name} {value}" for name, value in fields.items()]
    head = ("NIST_1A\n   1024\n" + "\n".join([*lines, "end_head"]) + "\n").encode().ljust(1024)
    return head + np.asarray(samples).astype("<i2" if order == "01" else ">i2").tobytes()


def write_timit(folder, samples, phonemes, order="01", **changes):
    place = folder / "TRAIN" / "DR1" / "FCJF0"
    place.mkdir(parents=True, exist_ok=True)
    (place / "SA1.WAV").write_bytes(sphere(samples, order, **changes))
    (place / "SA1.PHN").write_text(phonemes)
    return place


@pytest.mark.parametrize("order", ["01", "10"])
def test_sentences_of_timit_are_read_with_their_phonemes(tmp_path, order):
    samples = np.array([0, 1, -2, 300, -32768, 32767])
    write_timit(tmp_path, samples, "0 3 h#\n3 6 sh\n", order)
    (sentence,) = read_timit(tmp_path)
    assert (sentence.name, sentence.phonemes) == ("DR1/FCJF0/SA1", [(0, 3, "h#"), (3, 6, "sh")])
    np.testing.assert_array_equal(sentence.samples, samples)


@pytest.mark.parametrize(
    ("phonemes", "changes", "message"),
    [
        ("0 9 h#\n", {}, "line 1: 0 to 9 is outside of 6 samples"),
        ("0 3 h#\n3 sh\n", {}, "line 2: expected two numbers and a symbol, got '3 sh'"),
        ("0 3 h#\n", {"sample_rate": "-i 8000"}, "sample_rate must be 16000, got '8000'"),
        ("0 3 h#\n", {"sample_count": "-i 7"}, "has 12 bytes of sound, but sample_count is '7'"),
        ("0 3 h#\n", {"sample_coding": "-s26 pcm,embedded-shorten-v2.00"}, "must have plain samples"),
    ],
)
def test_files_of_timit_that_do_not_fit_are_refused(tmp_path, phonemes, changes, message):
    write_timit(tmp_path, np.arange(6), phonemes, **changes)
    with pytest.raises(DataSetError, match=message):
        read_timit(tmp_path)


def test_parts_and_files_of_timit_that_are_not_there_are_named(tmp_path):
    place = write_timit(tmp_path, np.arange(6), "0 3 h#\n")
    with pytest.raises(DataSetError, match="There is no folder TEST"):
        read_timit(tmp_path, "test")
    (place / "SA1.PHN").unlink()
    with pytest.raises(DataSetError, match="no file of phonemes"):
        read_timit(tmp_path)
    (place / "SA1.WAV").write_bytes(b"RIFF")
    with pytest.raises(DataSetError, match="not a file of sound in the format NIST SPHERE"):
        read_timit(tmp_path)
    (place / "SA1.WAV").unlink()
    with pytest.raises(DataSetError, match="no files of sound"):
        read_timit(tmp_path)


def test_windows_are_centred_on_phonemes_and_missing_beyond_the_sentence():
    sentence = Utterance("a", np.arange(40, dtype=np.int16), [(0, 10, "a"), (10, 40, "b")])
    windows, symbols = phoneme_windows(sentence, milliseconds=1)  # 16 samples
    assert (windows.shape, symbols.tolist()) == ((2, 16), ["a", "b"])
    np.testing.assert_array_equal(windows[0, :3], np.full(3, np.nan))
    np.testing.assert_array_equal(windows[0, 3:] * 32768, np.arange(13))
    np.testing.assert_array_equal(windows[1] * 32768, np.arange(17, 33))
