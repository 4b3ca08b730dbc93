r"""The only code that generates random numbers: seeds, torch generators, and noise determined by rows.

Draws are *row-stable*: the noise of a row is a function of the seed and of the row's id; without ids, of the
seed, of the row's content and, where equal rows must be drawn differently, of the number of equal rows before
it. It is not a function of the batch. Each row gets a 64-bit key by hashing its id or its cells; the noise
is the output of a counter-based generator (the finaliser of SplitMix64) at (key, draw, feature).

References
----------
Steele, Lea & Flood (2014), Fast splittable pseudorandom number generators (the finaliser and its constants).
"""

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import ndtri

from halfseen._arrays import Floats, Integers

Keys = npt.NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_DRAW_STEP = 0xD1B54A32D192ED03
_OF_TEXT = np.uint64(0xA0761D6478BD642F)  # added to the hashes of ids that are texts, so that "7" is not 7
_OF_NEGATIVE = np.uint64(0xE7037ED1A0B428DB)  # and to negative ids, so that -1 is not 2**64 - 1


def seed_from(random_state: object) -> int:
    """Returns a seed below 2**63 from None, an integer, or a numpy generator (which it advances)."""
    if random_state is None:
        return int(np.random.default_rng().integers(2**63))
    if isinstance(random_state, int | np.integer) and not isinstance(random_state, bool):
        if random_state < 0:
            raise ValueError(f"random_state must not be negative, got {random_state!r}.")
        return int(random_state) % 2**63
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**63))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31))
    raise ValueError(f"random_state must be None, an integer or a numpy generator, got {random_state!r}.")


def torch_generator(seed: int) -> torch.Generator:
    """Returns a fresh torch generator; the global state is not changed."""
    return torch.Generator().manual_seed(seed)


def content_keys(cells: Floats, seed: int) -> Keys:
    """Hashes each row of an array with NaN to a key; equal rows have equal keys, those of a row alone.

    Examples
    --------
    >>> cells = np.array([[1.0, np.nan], [2.0, 3.0], [1.0, np.nan]])
    >>> keys = content_keys(cells, seed=0)
    >>> bool(keys[0] == keys[2]), bool(keys[0] == row_keys(cells, seed=0)[0])
    (True, True)
    """
    return _mix(_hash_rows(cells.T, len(cells), seed))


def row_keys(cells: Floats, seed: int) -> Keys:
    """Hashes each row of an array with NaN to a key; equal rows differ by their rank among equals.

    Examples
    --------
    >>> cells = np.array([[1.0, np.nan], [2.0, 3.0], [1.0, np.nan]])
    >>> together, alone = row_keys(cells, seed=0), row_keys(cells[1:2], seed=0)
    >>> bool(together[1] == alone[0]), bool(together[0] != together[2])
    (True, True)
    """
    return _ranked_keys(cells.T, len(cells), seed)


def value_keys(values: Floats) -> Keys:
    """Hashes numbers; different numbers have different hashes.

    Examples
    --------
    >>> keys = value_keys(np.array([0.0, -0.0, 1.0]))
    >>> bool(keys[0] == keys[1]), bool(keys[0] == keys[2])
    (True, False)
    """
    return _mix((values + 0.0).view(np.uint64) + _GOLDEN)


def choose_rows(columns: Iterable[Floats], n_rows: int, n_chosen: int, seed: int = 0) -> Integers:
    """Returns the positions of the rows with the smallest keys, in the order of the keys.

    Which rows they are depends on the set of rows and on the seed, not on the order of the table.

    Parameters
    ----------
    columns : iterable of ndarray of shape (n_rows,)
        The cells, with NaN, one column after the other: no copy of the whole table is needed.
    n_rows, n_chosen : int
        The number of rows of the table, and of those that are chosen at most.
    seed : int
        The seed of the keys.

    Examples
    --------
    >>> column = np.array([5.0, 1.0, 4.0, 2.0, 4.0])
    >>> chosen, reversed_ = (choose_rows([one], 5, 2) for one in (column, column[::-1]))
    >>> bool((column[chosen] == column[::-1][reversed_]).all())
    True
    """
    keys = _ranked_keys(columns, n_rows, seed)
    if n_chosen < n_rows:
        least = np.argpartition(keys, n_chosen)[:n_chosen]
        return least[np.argsort(keys[least])]
    return np.argsort(keys)


def id_keys(ids: Any, seed: int) -> Keys:
    """Hashes ids, integers or texts, to keys: equal ids have equal keys, whatever the other ids are.

    Raises
    ------
    ValueError
        If an id is neither a text nor an integer of 64 bits.

    Examples
    --------
    >>> keys = id_keys([7, 8, 7], seed=0)
    >>> bool(keys[0] == keys[2]), bool(keys[0] == id_keys(["7"], seed=0)[0])
    (True, False)
    """
    array = ids if isinstance(ids, np.ndarray) else np.asarray(ids)
    if array.ndim != 1:
        raise ValueError(f"row_ids must be one-dimensional, got the shape {array.shape}.")
    if len(array) == 0:
        return np.empty(0, dtype=np.uint64)
    if array.dtype.kind in "iu":
        hashes = array.astype(np.int64 if array.dtype.kind == "i" else np.uint64).view(np.uint64)
        hashes = hashes + (array < 0) * _OF_NEGATIVE
    else:
        hashes = np.fromiter(_hash_ids(array.tolist()), dtype=np.uint64, count=len(array))
    start = _mix(np.array([seed], dtype=np.uint64))[0]
    return _mix(_mix(start ^ _mix(hashes + _GOLDEN)))


def keys_of_draw(keys: Keys, draw: int) -> Keys:
    """Returns keys whose first draw is the given draw of the keys.

    Examples
    --------
    >>> keys = row_keys(np.array([[1.0], [2.0]]), seed=0)
    >>> bool((row_uniforms(keys_of_draw(keys, 3), 0, 2) == row_uniforms(keys, 3, 2)).all())
    True
    """
    return keys + np.uint64(draw * _DRAW_STEP % 2**64)


def row_uniforms(keys: Keys, draw: int, n_features: int, stream: int = 0) -> Floats:
    """Returns uniforms in (0, 1) of shape (N, D), determined by the rows; `stream` separates purposes."""
    counter = np.arange(n_features, dtype=np.uint64) + np.uint64(stream << 32)
    row = _mix(keys + np.uint64((draw + 1) * _DRAW_STEP % 2**64))
    bits = _mix(row[:, None] ^ _mix(counter * _GOLDEN)[None, :])
    return ((bits >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


def row_normals(keys: Keys, draw: int, n_features: int, stream: int = 0) -> Floats:
    """Returns standard normals of shape (N, D), determined by the rows."""
    normals: Floats = ndtri(row_uniforms(keys, draw, n_features, stream))
    return normals


def _ranked_keys(columns: Iterable[Floats], n_rows: int, seed: int) -> Keys:
    keys = _hash_rows(columns, n_rows, seed)
    return _mix(keys + _duplicate_ranks(keys) * _GOLDEN)


def _hash_rows(columns: Iterable[Floats], n_rows: int, seed: int) -> Keys:
    keys = np.full(n_rows, _mix(np.array([seed], dtype=np.uint64))[0])
    for column in columns:
        clean = np.where(np.isnan(column), np.nan, column) + 0.0  # one NaN, and -0.0 becomes 0.0
        keys = _mix(keys ^ _mix(clean.view(np.uint64) + _GOLDEN))
    return keys


def _hash_ids(ids: Iterable[Any]) -> Iterable[int]:
    """Yields a number below 2**64 for each id, the same for an integer as in an array of integers."""
    for position, one in enumerate(ids):
        if isinstance(one, str):
            digest = blake2b(one.encode("utf-8", "surrogatepass"), digest_size=8).digest()
            yield (int.from_bytes(digest, "little") + int(_OF_TEXT)) % 2**64
        elif type(one) is int and -(2**63) <= one < 2**64:
            yield (one + int(_OF_NEGATIVE) * (one < 0)) % 2**64
        else:
            raise ValueError(
                f"row_ids must be texts or integers of 64 bits, got {one!r} at position {position}."
            )


def _mix(z: Keys) -> Keys:
    with np.errstate(over="ignore"):
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _duplicate_ranks(keys: Keys) -> Keys:
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(keys) else order
    lengths = np.diff(np.r_[starts, len(keys)])
    ranks = np.empty(len(keys), dtype=np.uint64)
    ranks[order] = np.arange(len(keys), dtype=np.uint64) - np.repeat(starts, lengths).astype(np.uint64)
    return ranks
