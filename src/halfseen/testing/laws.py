"""What a law is, and the laws of all estimators: parameters, seeds, model files, and what nobody may change.

A law takes some of the following by name: ``make``, which returns an estimator that is not fitted, with the
random state 0 or the given parameters; ``fitted``, an estimator that is fitted already and must stay as it
is; ``fit`` and ``ask``, which fit an estimator and return a list of all its answers; and the ``table``.
"""

import inspect
import random
import tempfile
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from halfseen import config
from halfseen.base.model_file import load
from halfseen.data import incomplete as blocks
from halfseen.testing.tables import as_table, assert_close, assert_identical, bits, hide, names, take


@dataclass(frozen=True)
class Law:
    """A law: a function, and the parameters and methods that an estimator needs so that it applies."""

    check: Callable[..., None]
    needs: tuple[str, ...] = ()

    @property
    def name(self):
        """The name of the function."""
        return self.check.__name__

    @property
    def arguments(self):
        """The names of what it takes."""
        return tuple(inspect.signature(self.check).parameters)

    def __str__(self):
        return self.name


def registered_in(laws):
    """Returns a decorator that adds a function to a list of laws; its arguments are what the law needs."""

    def needing(*needs):
        def register(check):
            laws.append(Law(check, needs))
            return check

        return register

    return needing


ESTIMATOR_LAWS: list[Law] = []
FEW_ROWS = 64  # of a block in laws about blocks
law = registered_in(ESTIMATOR_LAWS)
QUESTIONS = (
    "transform", "sample", "interval", "class_probabilities", "top_probabilities", "score_samples", "predict",
    "predict_proba", "predict_interval",
)  # fmt: skip


def learned(estimator):
    """What was learned: the content of the model file, if there can be one, and the names of attributes."""
    if not hasattr(estimator, "save"):
        return None, set(vars(estimator))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        estimator.save(path)
        return path.read_bytes(), set(vars(estimator))


def assert_same_parameters(one, other):
    """Parameters are equal, or, as estimators have no equality, are written in the same way."""
    expected = other.get_params()
    for name, value in one.get_params().items():
        same = value == expected[name] or repr(value) == repr(expected[name])
        assert same, f"the parameter {name} is {value!r}, not {expected[name]!r}"


@law()
def a_clone_has_the_parameters_and_nothing_that_was_learned(fitted):
    """``sklearn.base.clone`` copies parameters alone."""
    copy = clone(fitted)
    assert_same_parameters(copy, fitted)
    kept = [name for name in vars(copy) if name.endswith("_") and not name.startswith("_")]
    assert not kept, f"a clone still has {kept}"


@law("random_state")
def equal_seeds_give_equal_answers(make, fit, ask, fitted):
    """A second fit with the same random state learns the same and gives the same answers, bit by bit."""
    again = fit(make())
    assert learned(again) == learned(fitted), "what was learned differs"
    assert_identical(ask(again), ask(fitted))


@law("save")
def a_loaded_model_is_the_saved_one(fitted, ask):
    """A model file has all that was learned: answers, parameters and attributes are the same."""
    with tempfile.TemporaryDirectory() as folder:
        fitted.save(Path(folder) / "model")
        loaded = load(Path(folder) / "model")
        loaded.save(Path(folder) / "again")
        assert (Path(folder) / "again").read_bytes() == (Path(folder) / "model").read_bytes()
    assert type(loaded) is type(fitted)
    assert_same_parameters(loaded, fitted)
    assert getattr(loaded, "schema_", None) == getattr(fitted, "schema_", None)
    assert vars(loaded).keys() == vars(fitted).keys()
    assert_identical(ask(loaded), ask(fitted))


@law()
def an_estimator_that_was_not_fitted_raises_an_error(make, table):
    """Every question before `fit` is a NotFittedError; nor can such an estimator be saved."""
    for question in QUESTIONS:
        if hasattr(make(), question):
            with np.testing.assert_raises_regex(NotFittedError, "instance is not fitted yet"):
                getattr(make(), question)(table)
    if hasattr(make(), "save"):
        with tempfile.TemporaryDirectory() as folder:
            with np.testing.assert_raises(NotFittedError):
                make().save(Path(folder) / "model")
            assert not list(Path(folder).iterdir()), "a file was left"


@law()
def the_table_of_the_caller_is_never_changed(make, fit, ask, table):
    """Neither `fit` nor an answer writes into the table."""
    before = bits(table)
    ask(fit(make()))
    assert bits(table) == before, "the table was changed"


@law()
def answers_change_nothing(fitted, ask):
    """An estimator is the same before and after it was asked."""
    before = learned(fitted)
    ask(fitted)
    assert learned(fitted) == before, "an answer changed the estimator"


@law()
def global_generators_are_not_used(make, fit, ask):
    """Neither `fit` nor an answer draws from the global generators of Python, numpy and torch."""
    before = _generators()
    ask(fit(make()))
    for name, state in _generators().items():
        assert state == before[name], f"the global generator of {name} was used"


@contextmanager
def other_defaults():
    """Torch with other modes and defaults than in a new process."""
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("meta"), torch.inference_mode():
            yield
    finally:
        left = torch.get_default_dtype()
        torch.set_default_dtype(torch.float32)
    assert left == torch.float64, f"the default type of torch was left at {left}"


@contextmanager
def surroundings(rows, budget, n_threads, defaults=nullcontext):
    """Blocks of few rows, so that small tables have several, a memory budget, and a number of threads."""
    before, size = torch.get_num_threads(), blocks.MOST_ROWS
    torch.set_num_threads(n_threads)
    blocks.MOST_ROWS = rows
    try:
        with config.context(memory_budget=budget), defaults():
            yield
    finally:
        torch.set_num_threads(before)
        blocks.MOST_ROWS = size


LITTLE, MUCH = (FEW_ROWS, "16 MiB", 1), (FEW_ROWS, "4 GiB", 2, other_defaults)


@law()
def answers_depend_neither_on_the_memory_budget_nor_on_the_state_of_torch(fitted, ask):
    """Every answer is the same, bit by bit, with any memory budget, threads, modes and default types."""
    with surroundings(*LITTLE):
        expected = ask(fitted)
    with surroundings(*MUCH):
        found = ask(fitted)
    assert_identical(found, expected)


@law("random_state", "save")
def what_is_learned_depends_neither_on_the_memory_budget_nor_on_the_state_of_torch(make, fit):
    """A model file is the same, bit by bit, with any memory budget, threads, modes and default types."""
    with surroundings(*LITTLE):
        expected = learned(fit(make()))
    with surroundings(*MUCH):
        again = fit(make())
    assert learned(again) == expected, "what was learned differs"


def _generators():
    numpy_state = np.random.get_state(legacy=False)["state"]  # noqa: NPY002
    return {
        "Python": random.getstate(),
        "numpy": (numpy_state["key"].tobytes(), numpy_state["pos"]),
        "torch": torch.random.get_rng_state().numpy().tobytes(),
    }


# The law of the same row: an answer about a row depends on the fitted model and on the row alone. Estimators
# are asked about rows alone, beside copies of themselves, in another order and in parts of a table. Numbers
# agree to `ROUNDING`, because products of matrices of different shapes are summed in different orders; labels
# and levels are identical.

N_ROWS = 30
ROUNDING = 2.5e-7
"""Of the largest number of a column: two units in the last place of a column in single precision, in which a
difference far below can round otherwise. In double precision the largest that was seen is 7e-9, in the table
whose columns are nearly determined by each other."""


def batches(n_rows):
    """Positions of rows that are asked together: alone, with copies, shuffled, and in parts."""
    order = np.random.default_rng(0).permutation(n_rows)
    parts = [part.tolist() for part in np.split(order, [7, 19])]
    return [[3], [3, 3, 3], [5, 3, 3, 8, 5], order.tolist(), *parts]


def assert_equal_but_rounding(actual, expected):
    """Numbers agree to `ROUNDING` of the largest of their column, and the rest exactly."""
    assert_close(actual, expected, ROUNDING)


def assert_function_of_the_row(ask, table, select=take, check=assert_equal_but_rounding):
    """`ask` returns a list of tables or arrays with one row for each row that it is given."""
    together = [as_table(answer) for answer in ask(table)]
    for rows in batches(len(together[0])):
        for answer, whole in zip(ask(select(table, rows)), together, strict=True):
            check(as_table(answer), take(whole, rows))


def assert_function_of_the_block(ask, table):
    """`ask` takes rows and their positions; parts of whole blocks have the answers of all, bit by bit."""
    with surroundings(*LITTLE):
        together = [as_table(answer) for answer in ask(table, np.arange(len(table)))]
        for rows in filter(len, np.split(np.arange(len(table)), [FEW_ROWS, 3 * FEW_ROWS])):
            found = [as_table(answer) for answer in ask(take(table, rows), rows)]
            assert_identical(found, [take(whole, rows) for whole in together])


def sparser(table, rate=0.25):
    """The first rows, with more missing cells than the table has."""
    rng = np.random.default_rng(5)
    some = take(table, range(N_ROWS))
    return hide(some, rng.random((N_ROWS, len(names(table)))) < rate)
