"""Methods in a comparison, halfseen's imputers and any transformer of arrays, and tables as numeric codes."""

import copy
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

import narwhals as nw
import numpy as np
import torch
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from halfseen._arrays import Booleans, Floats, Integers
from halfseen.base.completion import decode_mean
from halfseen.data.features import FeatureMap
from halfseen.data.frames import is_frame
from halfseen.data.incomplete import Incomplete, unmask
from halfseen.data.schema import Column, code_settings, infer_codes, open_table
from halfseen.errors import SchemaError


@dataclass(frozen=True)
class CodedTable:
    """The modelled columns of a table as numbers: values, positions among levels, or microseconds.

    Kinds and levels are inferred once from the whole table, so that they are the same for all methods; scales
    and everything else are learned from training values only.

    Shapes
    ------
    codes : (N, C), NaN for missing values.
    positions : C positions of the columns in the user's table.

    Examples
    --------
    >>> import pandas as pd
    >>> table = CodedTable.read(pd.DataFrame({"x": [1.5, None, 2.5], "s": ["b", "a", "b"], "one": [1, 1, 1]}))
    >>> [column.name for column in table.columns]
    ['x', 's']
    >>> table.codes
    array([[1.5, 1. ],
           [nan, 0. ],
           [2.5, 1. ]])
    """

    columns: tuple[Column, ...]
    codes: Floats
    positions: tuple[int, ...]

    @classmethod
    def read(cls, X: Any, schema: Any = None) -> "CodedTable":
        """Reads a pandas, polars or pyarrow table, or an array; `schema` as in the imputers."""
        table = open_table(X)
        inferred, codes = infer_codes(table, schema)
        positions = tuple(j for j, column in enumerate(inferred) if column.modelled)
        if not positions:
            raise SchemaError(
                "The table has no column on which imputers can be compared: all columns are constant or "
                "empty."
            )
        return cls(codes.columns, codes.with_nan, positions)

    @property
    def n_levels(self) -> tuple[int | None, ...]:
        """The number of levels per column, None for numbers."""
        return tuple(None if column.levels is None else len(column.levels) for column in self.columns)

    @property
    def numeric(self) -> Booleans:
        """Which columns (C) are numeric."""
        return np.array([column.levels is None for column in self.columns])

    def array_schema(self) -> dict[int, dict[str, Any]]:
        """Returns schema settings with which an imputer reads the codes as columns of the right kinds."""
        return code_settings(self.columns)

    def digest(self) -> str:
        """Returns a hash of the content: names, kinds, levels and all values."""
        described = json.dumps([asdict(column) for column in self.columns], default=str, sort_keys=True)
        content = hashlib.sha256(described.encode())
        content.update(np.ascontiguousarray(np.where(np.isnan(self.codes), np.nan, self.codes)).tobytes())
        return content.hexdigest()


def take_rows(X: Any, rows: Integers) -> Any:
    """Returns some rows of a table, in its own library."""
    if is_frame(X):
        frame: Any = nw.from_native(X, eager_only=True)
        return frame[rows.tolist()].to_native()
    return np.asarray(unmask(X))[rows]


TIE_BREAK = 1e-4  # of equal shares the level that is more frequent in training wins


class NotApplicableError(ValueError):
    """Raised if a method cannot be applied to a table, for a reason that is known before it runs."""


@dataclass(frozen=True)
class OnNumbers:
    """A transformer of numeric arrays, with settings for mixed tables.

    Parameters
    ----------
    imputer : object with fit and transform
        A transformer of numeric arrays.
    full_rank : bool, optional
        Whether to leave out one indicator per column with levels. Chained regressions need this, because the
        other indicators determine it; means, medians and nearest neighbours need all indicators. By default
        True for scikit-learn's IterativeImputer and False otherwise.
    max_features : int, optional
        The method is not applied to tables with more features, counting one per level.
    """

    imputer: Any
    full_rank: bool | None = None
    max_features: int | None = None

    @property
    def last(self) -> Any:
        """The last step of a pipeline, or the transformer itself."""
        return self.imputer[-1] if isinstance(self.imputer, Pipeline) else self.imputer


@dataclass(frozen=True)
class Answer:
    """The imputations of incomplete rows by a method; None for what it does not provide.

    Shapes
    ------
    point : (N, C), the single values.
    draws : (S, N, C)
    low, high : (N, C), the ends of intervals.
    probabilities : per column with levels (N, L), in the order of the schema.
    """

    point: Floats
    draws: Floats | None = None
    low: Floats | None = None
    high: Floats | None = None
    probabilities: Mapping[int, Floats] | None = None


class Candidate(Protocol):
    """A method in a comparison, fitted to codes (N, C) with NaN."""

    def fit(self, codes: Floats) -> None:
        """Learns from the training rows."""
        ...

    def fill(self, codes: Floats) -> Floats:
        """Returns the single values (N, C); the step that is timed."""
        ...

    def answer(self, codes: Floats, point: Floats, n_draws: int, level: float) -> Answer:
        """Returns imputations, draws and intervals of the rows, given their single values."""
        ...


def enter(imputer: Any, table: CodedTable, seed: int) -> Candidate:
    """Returns a copy of an imputer, seeded and prepared for a comparison on a table.

    The methods `sample`, `interval` and `class_probabilities` are used if an imputer has all of them. Any
    other object with `fit` and `transform` receives an array of standardised numbers and 0-1 indicators of
    levels.
    """
    if isinstance(imputer, OnNumbers):
        return ArrayCandidate(replace(imputer, imputer=_seeded(imputer.imputer, seed)), table.columns)
    if not (hasattr(imputer, "fit") and hasattr(imputer, "transform")):
        raise ValueError(
            f"An imputer must have the methods fit and transform; {type(imputer).__name__} does not."
        )
    fresh = _seeded(imputer, seed)
    if all(hasattr(imputer, name) for name in ("sample", "interval", "class_probabilities")):
        if "schema" in fresh.get_params():
            fresh.set_params(schema=table.array_schema())
        return TableCandidate(fresh, table.columns)
    return ArrayCandidate(OnNumbers(fresh), table.columns)


def _seeded(imputer: Any, seed: int) -> Any:
    if not hasattr(imputer, "get_params"):
        return copy.deepcopy(imputer)
    fresh = clone(imputer)
    names = [n for n in fresh.get_params() if n == "random_state" or n.endswith("__random_state")]
    return fresh.set_params(**dict.fromkeys(names, seed % 2**31)) if names else fresh


@dataclass
class TableCandidate:
    """An imputer with draws, intervals and class probabilities, on arrays of codes."""

    imputer: Any
    columns: Sequence[Column]

    def fit(self, codes: Floats) -> None:
        """Learns from the training rows."""
        self.imputer.fit(codes)

    def fill(self, codes: Floats) -> Floats:
        """Returns the single values."""
        return _checked(self.imputer.transform(codes), codes)

    def answer(self, codes: Floats, point: Floats, n_draws: int, level: float) -> Answer:
        """Returns imputations, draws, intervals and probabilities."""
        low, high = self.imputer.interval(codes, level=level)
        by_name = self.imputer.class_probabilities(codes)
        probabilities = {
            j: by_name.get(f"x{j}", np.full((len(codes), len(column.levels)), 1 / len(column.levels)))
            for j, column in enumerate(self.columns)
            if column.levels is not None
        }
        return Answer(point, self.imputer.sample(codes, n_draws=n_draws), low, high, probabilities)


@dataclass
class ArrayCandidate:
    """A transformer on standardised numbers and indicators of levels; it gives single values, decoded back.

    Numbers are rounded and bounded as their column requires; the level with the largest indicator is imputed.
    A transformer with ``sample_posterior=True`` is drawn from, and its single values are means over the
    draws.
    """

    method: OnNumbers
    columns: Sequence[Column]
    features: FeatureMap = field(init=False)

    def fit(self, codes: Floats) -> None:
        """Learns scales from observed training cells, and the transformer from the standardised rows."""
        batch = Incomplete.from_array(codes)
        full_rank = self.method.full_rank
        if full_rank is None:
            full_rank = hasattr(self.method.last, "imputation_order")
        self.features = FeatureMap.fit(self.columns, batch, all_indicators=not full_rank)
        encoded = self.features.encode(batch).to_array()
        limit = self.method.max_features
        if limit is not None and encoded.shape[1] > limit:
            raise NotApplicableError(
                f"{encoded.shape[1]} features, counting one per level; it is feasible up to {limit}"
            )
        self.method.imputer.fit(encoded)
        shares = np.nanmean(np.r_[encoded, np.zeros((1, encoded.shape[1]))], axis=0)
        shares[: len(self.features.numeric)] = 0.0
        self._preference = shares * (0.0 if full_rank else TIE_BREAK)

    def fill(self, codes: Floats) -> Floats:
        """Returns the single values; means over ten draws if the transformer draws."""
        n_passes = 10 if self._stochastic else 1
        return self._decode(codes, np.mean([self._transform(codes) for _ in range(n_passes)], axis=0))

    def answer(self, codes: Floats, point: Floats, n_draws: int, level: float) -> Answer:
        """Returns the single values, and draws if the transformer draws."""
        if not self._stochastic:
            return Answer(point)
        drawn = [self._decode(codes, self._transform(codes)) for _ in range(n_draws)]
        return Answer(point, np.stack(drawn))

    @property
    def _stochastic(self) -> bool:
        return bool(getattr(self.method.last, "sample_posterior", False))

    def _transform(self, codes: Floats) -> Floats:
        encoded = self.features.encode(Incomplete.from_array(codes)).to_array()
        return _checked(self.method.imputer.transform(encoded), encoded)

    def _decode(self, codes: Floats, filled: Floats) -> Floats:
        batch = Incomplete.from_array(codes)
        decoded = decode_mean(self.features, batch, torch.from_numpy(filled + self._preference)).numpy()
        missing = np.isnan(codes)
        for j, column in enumerate(self.columns):
            decoded[missing[:, j], j] = column.constrain(decoded[missing[:, j], j])
        return decoded


def _checked(filled: Any, holey: Floats) -> Floats:
    """Returns a completed array; raises an error if it is invalid."""
    array = np.asarray(filled.toarray() if hasattr(filled, "toarray") else filled, dtype=np.float64)
    if array.shape != holey.shape:
        raise ValueError(
            f"The method returned an array of shape {array.shape} for a table of shape {holey.shape}."
        )
    left = int((~np.isfinite(array)).sum())
    if left:
        raise ValueError(f"The method left {left} values missing or infinite.")
    return array
