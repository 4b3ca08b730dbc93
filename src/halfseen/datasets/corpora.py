"""Readers of the published files of small NORB (stereo images of toys) and TIMIT (speech with phonemes).

Both corpora have terms of their own and are not among the files of `halfseen.datasets.load`: these functions
read the files of users who have them.
"""

import gzip
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from halfseen.datasets.loaders import DataSetError

# By magic number: bytes and integers.
MATRIX_TYPES: dict[int, np.dtype[Any]] = {0x1E3D4C55: np.dtype("u1"), 0x1E3D4C54: np.dtype("<i4")}
NORB_FILES = {
    "train": "smallnorb-5x46789x9x18x6x2x96x96-training",
    "test": "smallnorb-5x01235x9x18x6x2x96x96-testing",
}
SPHERE_MAGIC = b"NIST_1A\n"
SAMPLE_RATE = 16_000  # of TIMIT, in hertz


@dataclass(frozen=True)
class Norb:
    """Stereo images of toys.

    Attributes
    ----------
    images : array of shape (n, 2, height, width)
        Shades from 0 to 255, of the left and the right camera.
    category : array of shape (n,)
        0 animal, 1 human, 2 plane, 3 truck, 4 car.
    info : array of shape (n, 4)
        The instance of the toy, elevation, azimuth and lighting, as codes.
    """

    images: npt.NDArray[np.uint8]
    category: npt.NDArray[np.int32]
    info: npt.NDArray[np.int32]


@dataclass(frozen=True)
class Utterance:
    """One sentence of TIMIT.

    Attributes
    ----------
    name : str
        Region, speaker and sentence, such as ``"DR1/FCJF0/SA1"``.
    samples : array of shape (n_samples,)
        The sound, 16 bits at 16 kHz.
    phonemes : list of (int, int, str)
        The first sample, the sample after the last, and the symbol of each phoneme.
    """

    name: str
    samples: npt.NDArray[np.int16]
    phonemes: list[tuple[int, int, str]]


def read_norb(folder: str | os.PathLike[str], part: Literal["train", "test"] = "train") -> Norb:
    """Reads a part of small NORB from its three published files, as they are or compressed (.gz).

    Parameters
    ----------
    folder : path
        Holds the files ``smallnorb-...-dat.mat``, ``-cat.mat`` and ``-info.mat``.
    part : {"train", "test"}
        Which part.

    Raises
    ------
    DataSetError
        If a file is missing, is not in the published format, or does not fit the others.

    References
    ----------
    LeCun, Huang & Bottou (2004), Learning methods for generic object recognition with invariance to pose and
    lighting.
    """
    if part not in NORB_FILES:
        raise DataSetError(f"part must be 'train' or 'test', got {part!r}.")
    images, category, info = (
        _read_matrix(_existing(Path(folder) / f"{NORB_FILES[part]}-{kind}.mat", ".gz"))
        for kind in ("dat", "cat", "info")
    )
    if images.ndim != 4 or images.shape[1] != 2 or images.dtype != np.uint8:
        raise DataSetError(f"The images of {folder} must be bytes of shape (n, 2, H, W), got {images.shape}.")
    if category.shape != (len(images),) or info.shape != (len(images), 4):
        raise DataSetError(
            f"The files of {folder} do not belong together: {images.shape} images, {category.shape} "
            f"categories and {info.shape} descriptions."
        )
    return Norb(images, category, info)


def _existing(path: Path, ending: str) -> Path:
    """Returns the path, or that with another ending, whichever exists."""
    for one in (path, path.with_name(path.name + ending)):
        if one.exists():
            return one
    raise DataSetError(f"There is no file {path}, with or without the ending {ending}.")


def _read_matrix(path: Path) -> npt.NDArray[Any]:
    """Reads a binary matrix: a magic number, the number of dimensions, at least three sizes, the data."""
    content = path.read_bytes()
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    start = np.frombuffer(content[:8], dtype="<i4")
    if len(start) < 2 or int(start[0]) not in MATRIX_TYPES:
        raise DataSetError(f"{path} is not a binary matrix of bytes or integers: its first bytes are others.")
    n_dimensions = int(start[1])
    first = 8 + 4 * max(3, n_dimensions)
    shape = np.frombuffer(content[8:first], dtype="<i4")[:n_dimensions].tolist()
    dtype = MATRIX_TYPES[int(start[0])]
    expected = first + math.prod(shape) * dtype.itemsize
    if n_dimensions < 1 or len(shape) != n_dimensions or len(content) != expected:
        raise DataSetError(
            f"{path} has {len(content)} bytes, but its header of sizes {shape} needs {expected}."
        )
    matrix: npt.NDArray[Any] = np.frombuffer(content, dtype=dtype, offset=first).reshape(shape).copy()
    return matrix


def read_timit(folder: str | os.PathLike[str], part: Literal["train", "test"] = "train") -> list[Utterance]:
    """Reads the sentences of a part of TIMIT with their phonemes, in the order of their names.

    Parameters
    ----------
    folder : path
        Holds the folders ``TRAIN`` and ``TEST`` of the corpus (in either case), with a file of sound
        (``.WAV``, NIST SPHERE) and one of phonemes (``.PHN``) for each sentence.
    part : {"train", "test"}
        Which part.

    Raises
    ------
    DataSetError
        If there are no sentences, a file is missing or is not in the published format, or phonemes lie
        outside of the sound.

    References
    ----------
    Garofolo et al. (1993), TIMIT acoustic-phonetic continuous speech corpus, LDC93S1.
    """
    if part not in ("train", "test"):
        raise DataSetError(f"part must be 'train' or 'test', got {part!r}.")
    root = next((p for p in (Path(folder) / part.upper(), Path(folder) / part) if p.is_dir()), None)
    if root is None:
        raise DataSetError(f"There is no folder {part.upper()} in {folder}.")
    sounds = sorted(path for path in root.rglob("*") if path.suffix.upper() == ".WAV")
    if not sounds:
        raise DataSetError(f"There are no files of sound (.WAV) in {root}.")
    found = []
    for path in sounds:
        samples = _read_sphere(path)
        phonemes = _read_phonemes(path, len(samples))
        found.append(Utterance("/".join(path.relative_to(root).with_suffix("").parts), samples, phonemes))
    return found


def _read_sphere(path: Path) -> npt.NDArray[np.int16]:
    """Reads uncompressed sound of 16 bits with one channel in the format NIST SPHERE."""
    content = path.read_bytes()
    if not content.startswith(SPHERE_MAGIC) or not content[8:16].strip().isdigit():
        raise DataSetError(f"{path} is not a file of sound in the format NIST SPHERE.")
    size = int(content[8:16])
    fields = {}
    for line in content[16:size].decode("ascii", errors="replace").splitlines():
        if line.strip() == "end_head":
            break
        name, _, value = line.partition(" ")
        fields[name] = value.partition(" ")[2].strip()
    wanted = {"channel_count": "1", "sample_n_bytes": "2", "sample_rate": str(SAMPLE_RATE)}
    for name, value in wanted.items():
        if fields.get(name) != value:
            raise DataSetError(f"{path}: {name} must be {value}, got {fields.get(name)!r}.")
    if fields.get("sample_coding", "pcm") != "pcm" or fields.get("sample_byte_format") not in ("01", "10"):
        raise DataSetError(f"{path} must have plain samples (pcm) in the byte order 01 or 10.")
    data = content[size:]
    if fields.get("sample_count") != str(len(data) // 2) or len(data) % 2:
        raise DataSetError(
            f"{path} has {len(data)} bytes of sound, but sample_count is {fields.get('sample_count')!r}."
        )
    order = "<i2" if fields["sample_byte_format"] == "01" else ">i2"
    return np.frombuffer(data, dtype=order).astype(np.int16)


def _read_phonemes(sound: Path, n_samples: int) -> list[tuple[int, int, str]]:
    """Reads the phonemes of a file of sound: first sample, sample after the last, and symbol."""
    path = next((p for p in (sound.with_suffix(".PHN"), sound.with_suffix(".phn")) if p.exists()), None)
    if path is None:
        raise DataSetError(f"There is no file of phonemes (.PHN) beside {sound}.")
    found = []
    for number, line in enumerate(path.read_text(encoding="ascii").splitlines(), start=1):
        parts = line.split()
        if len(parts) != 3 or not (parts[0].isdigit() and parts[1].isdigit()):
            raise DataSetError(f"{path}, line {number}: expected two numbers and a symbol, got {line!r}.")
        start, stop = int(parts[0]), int(parts[1])
        if not start < stop <= n_samples:
            raise DataSetError(f"{path}, line {number}: {start} to {stop} is outside of {n_samples} samples.")
        found.append((start, stop, parts[2]))
    return found


def phoneme_windows(
    utterance: Utterance, milliseconds: int = 256
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.str_]]:
    """Returns windows of sound (n_phonemes, T) around the middle of each phoneme, and their symbols.

    Samples before the beginning and after the end of the sentence are NaN, that is missing. Sound is divided
    by 32,768.
    """
    length = SAMPLE_RATE * milliseconds // 1000
    if length < 1:
        raise DataSetError(f"milliseconds must be at least 1, got {milliseconds!r}.")
    padded = np.full(len(utterance.samples) + 2 * length, np.nan)
    padded[length : length + len(utterance.samples)] = utterance.samples / 32768
    starts = [length + (start + stop) // 2 - length // 2 for start, stop, _ in utterance.phonemes]
    windows = [padded[start : start + length] for start in starts]
    symbols = np.array([symbol for _, _, symbol in utterance.phonemes], dtype=np.str_)
    return np.stack(windows) if windows else np.empty((0, length)), symbols
