"""A tiny imputer with the interface of the real ones, so that the command line is tested on its own."""

from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import halfseen
from halfseen.base.capabilities import Capabilities
from halfseen.base.catalogue import CATALOGUE
from halfseen.cli import progress
from halfseen.cli.main import main
from halfseen.errors import SchemaError


@dataclass(frozen=True)
class FakeColumn:
    name: str
    kind: str
    dtype: str
    levels: tuple | None = None
    reason: str = "Because."
    left: None = None
    skip: None = None


@dataclass(frozen=True)
class FakeSchema:
    columns: tuple

    @staticmethod
    def read_overrides(path):
        if not Path(path).exists():
            raise SchemaError(f"The schema file {path!r} cannot be read.")
        return {}


def describe(name, column):
    seen = column.drop_null()
    if len(seen) == 0:
        return FakeColumn(name, "all-missing", str(column.type))
    if pa.types.is_string(column.type) or pa.types.is_boolean(column.type):
        return FakeColumn(name, "categorical", str(column.type), tuple(sorted(set(seen.to_pylist()))))
    return FakeColumn(
        name, "datetime" if pa.types.is_temporal(column.type) else "continuous", str(column.type)
    )


@dataclass
class FakeImputer:
    """Fills with observed values of the same column, picked at random."""

    capabilities = Capabilities(tables=True, imputes=True)

    schema: dict | None = None
    random_state: int = 0
    n_posterior_draws: int = 0
    callback: object = None
    max_seconds: float | None = None
    schema_: FakeSchema = field(init=False, default=None)

    def fit(self, table):
        for name, column in zip(table.column_names, table.columns, strict=True):
            if pa.types.is_floating(column.type) and pc.any(pc.is_inf(column)).as_py():
                raise SchemaError(f"Column {name!r} contains infinity.")
        self.schema_ = FakeSchema(tuple(map(describe, table.column_names, table.columns)))
        return self

    @property
    def seed_(self):
        return self.random_state

    def _leave_unreliable(self, checks, min_skill, at_chance):
        """Fills whatever the verdict."""

    def _fill(self, table, seed):
        generator = np.random.default_rng([self.random_state, seed])
        columns = []
        for column in table.columns:
            seen = column.drop_null().combine_chunks()
            if len(seen) and column.null_count:
                picked = seen.take(pa.array(generator.integers(0, len(seen), column.null_count)))
                mask = column.is_null().combine_chunks()
                column = pc.replace_with_mask(column.combine_chunks(), mask, picked)
            columns.append(column)
        return pa.table(columns, names=table.column_names)

    def transform(self, table):
        return self._fill(table, 0)

    def sample(self, table, n_draws):
        return [self._fill(table, draw + 1) for draw in range(n_draws)]

    def interval(self, table, level):
        ends = [self._fill(table, 0), self._fill(table, 1)]
        low = [
            self._end(pc.min_element_wise, *pair) for pair in zip(*(end.columns for end in ends), strict=True)
        ]
        high = [
            self._end(pc.max_element_wise, *pair) for pair in zip(*(end.columns for end in ends), strict=True)
        ]
        return tuple(pa.table(columns, names=table.column_names) for columns in (low, high))

    @staticmethod
    def _end(choose, one, other):
        return one if pa.types.is_string(one.type) or pa.types.is_boolean(one.type) else choose(one, other)

    def top_probabilities(self, table):
        return {
            column.name: np.full(table.num_rows, 1 / len(column.levels))
            for column in self.schema_.columns
            if column.levels
        }

    def save(self, path):
        Path(path).write_bytes(b"model")


@pytest.fixture(autouse=True)
def no_beats(monkeypatch):
    """Lines that appear after a while would make what is said depend on the speed of the machine."""
    monkeypatch.setattr(progress, "BEATS", (1e6,))


@pytest.fixture
def fakes(monkeypatch):
    for method in CATALOGUE:
        if method.class_name in ("AutoImputer", "GaussianImputer", "MixtureImputer", "MeanImputer"):
            module = import_module(f"halfseen.{method.module}")
            monkeypatch.setattr(halfseen, method.class_name, FakeImputer, raising=False)
            monkeypatch.setattr(module, method.class_name, FakeImputer)
    monkeypatch.setattr(halfseen, "Schema", FakeSchema, raising=False)
    monkeypatch.setattr(halfseen, "__version__", "0.0.test", raising=False)


@pytest.fixture
def call(capfd, tmp_path, monkeypatch):
    """Runs the command line in an empty directory; returns exit code, standard output and standard error."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        code = main([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return code, out, err

    return run


@pytest.fixture
def run(fakes, call):
    """The command line with tiny imputers."""
    return call
