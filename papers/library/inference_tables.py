"""Tables for the experiment on pooled intervals: how each is drawn, what is missing, and its analysis.

Each design has an outcome y and covariates that are related to it by a known regression. Values of covariates
are missing at random: with a probability that depends on the outcome, or on nothing. In tables of clusters
and of repeated measurements the outcome itself is missing, and rows of a group share a random intercept.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.optimize import brentq
from scipy.special import expit

from papers.claims import Setting

Floats = npt.NDArray[np.float64]
Generator = np.random.Generator

N_NORMAL = 8  # covariates of the tables with nine normal columns
COLLINEAR = 0.95  # the correlation of the collinear covariates
ZEROS = 0.4  # the share of zeros of the semi-continuous covariate
IN_CLUSTER, WAVES = 10, 4  # rows of a cluster, and of a person
CORRELATION = 0.4  # the intraclass correlation of the outcome within clusters and within people
INTRACLASS = "intraclass correlation"


@dataclass(frozen=True)
class Missing:
    """Which columns have missing values, how many, and how strongly that depends on the outcome.

    The logarithm of the odds that a value is missing rises by `slope` for each standard deviation of y, or of
    another column that is not missing.
    """

    columns: tuple[str, ...]
    slope: float
    share: float
    through: str = "y"

    def hide(self, generator: Generator, complete: pd.DataFrame) -> pd.DataFrame:
        """Returns the table with missing values."""
        known, shown = complete[self.through].to_numpy(np.float64), complete.copy()
        for column in self.columns:
            hidden = generator.random(len(known)) < _chances(known, self)
            shown[column] = complete[column].mask(hidden)
        return shown


@dataclass(frozen=True)
class DropOut:
    """People are not seen any more after a low value: y is missing in all later waves.

    The logarithm of the odds to leave after a wave is `intercept` at the mean of y in that wave, and falls by
    `slope` for each unit of y.
    """

    intercept: float = -1.5
    slope: float = 1.5
    columns: tuple[str, ...] = ("y",)

    def hide(self, generator: Generator, complete: pd.DataFrame) -> pd.DataFrame:
        """Returns the table with missing values."""
        values = complete["y"].to_numpy(np.float64).reshape(-1, WAVES)
        above = values - 0.5 * np.arange(WAVES)
        leaves = generator.random(values.shape) < expit(self.intercept - self.slope * above)
        gone = np.zeros(values.shape, bool)
        gone[:, 1:] = np.logical_or.accumulate(leaves, axis=1)[:, :-1]
        return complete.assign(y=complete["y"].mask(gone.ravel()))


@dataclass(frozen=True)
class Design:
    """How a table is drawn, and the true coefficients of its analysis.

    Attributes
    ----------
    draw : callable
        From a generator and the number of rows to the complete table.
    missing : Missing or DropOut
        What is missing.
    formula : str
        The analysis, in the form of statsmodels.
    truth : mapping of str to float
        The true values of the coefficients that are reported, by the names of statsmodels.
    model : {"ols", "poisson", "cox", "random intercepts"}
        The regression of the analysis; random intercepts are those of the groups of `options`.
    coverage : tuple of float
        Between which shares the coverage is claimed to be.
    claimed : bool
        Whether the default is claimed to be valid for this analysis.
    options : mapping
        Further arguments of `multiple_imputation` for the default: the analysis, if it has interactions or
        powers that are to be preserved, and the groups of rows.
    """

    draw: Callable[[Generator, int], pd.DataFrame]
    missing: Missing | DropOut
    formula: str
    truth: Mapping[str, float]
    model: str = "ols"
    coverage: tuple[float, float] = (0.93, 0.97)
    claimed: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Simulated:
    """A complete table, the same with missing values, and the seed of its imputation."""

    complete: pd.DataFrame
    shown: pd.DataFrame
    seed: int


def simulate(setting: Setting, repetition: int) -> Simulated:
    """Returns a table of a setting; the same for every method, and another for each repetition."""
    design = DESIGNS[setting["table"]]
    place = list(DESIGNS).index(setting["table"])
    generator = np.random.default_rng([repetition, place, setting["rows"]])
    complete = design.draw(generator, setting["rows"])
    return Simulated(complete, design.missing.hide(generator, complete), repetition)


def _chances(outcome: Floats, missing: Missing) -> Floats:
    """Returns the probability of each row that a value is missing, whose mean is the share."""
    slopes = missing.slope * (outcome - outcome.mean()) / outcome.std()
    start = brentq(lambda a: expit(a + slopes).mean() - missing.share, -30.0, 30.0)
    return np.asarray(expit(start + slopes), np.float64)


def _levels(effects: tuple[float, ...]) -> Callable[[Generator, int], pd.DataFrame]:
    """Returns how to draw a table with levels whose log odds are linear in z, and which shift y."""
    names = np.array(list("abc"))[: len(effects)]
    slopes = 0.7 * np.arange(len(effects))

    def draw(generator: Generator, n_rows: int) -> pd.DataFrame:
        z = generator.normal(size=n_rows)
        gumbel = generator.gumbel(size=(n_rows, len(effects)))
        level = (z[:, None] * slopes + gumbel).argmax(axis=1)  # a draw from the softmax
        y = np.array(effects)[level] + 0.5 * z + generator.normal(size=n_rows)
        return pd.DataFrame({"x": names[level].astype(object), "z": z, "y": y})

    return draw


def _normal(generator: Generator, n_rows: int) -> pd.DataFrame:
    z = generator.normal(size=n_rows)
    return _linear(generator, 0.5 * z + generator.normal(size=n_rows), z, slope=1.0)


def _log_normal(generator: Generator, n_rows: int) -> pd.DataFrame:
    z = generator.normal(size=n_rows)
    return _linear(generator, np.exp(0.5 * z + np.sqrt(0.75) * generator.normal(size=n_rows)), z)


def _ordinal(generator: Generator, n_rows: int) -> pd.DataFrame:
    z = generator.normal(size=n_rows)
    latent = 0.7 * z + generator.logistic(size=n_rows)
    values = 1 + np.digitize(latent, [-2.0, -0.7, 0.7, 2.0])
    return _linear(generator, values.astype(np.float64), z)


def _semicontinuous(generator: Generator, n_rows: int) -> pd.DataFrame:
    z = generator.normal(size=n_rows)
    positive = generator.random(n_rows) < expit(np.log((1 - ZEROS) / ZEROS) + 0.7 * z)
    amounts = generator.gamma(2.0, size=n_rows) * np.exp(0.3 * z)
    return _linear(generator, np.where(positive, amounts, 0.0), z)


def _linear(generator: Generator, x: Floats, z: Floats, slope: float = 0.5) -> pd.DataFrame:
    y = slope * x + slope * z + generator.normal(size=len(x))
    return pd.DataFrame({"x": x, "z": z, "y": y})


def _nine_normal(generator: Generator, n_rows: int) -> pd.DataFrame:
    shared = generator.normal(size=(n_rows, 1))
    x = np.sqrt(0.3) * shared + np.sqrt(0.7) * generator.normal(size=(n_rows, N_NORMAL))
    table = pd.DataFrame(x, columns=[f"x{j}" for j in range(1, N_NORMAL + 1)])
    return table.assign(y=0.5 * x[:, 0] + 0.5 * x[:, 1] + generator.normal(size=n_rows))


def _counts(generator: Generator, n_rows: int) -> pd.DataFrame:
    z = generator.normal(size=n_rows)
    x = 0.5 * z + np.sqrt(0.75) * generator.normal(size=n_rows)
    y = generator.poisson(np.exp(0.3 + 0.4 * x + 0.3 * z)).astype(np.float64)
    return pd.DataFrame({"x": x, "z": z, "y": y})


def _collinear(generator: Generator, n_rows: int) -> pd.DataFrame:
    x, other, noise = generator.normal(size=(3, n_rows))
    z = COLLINEAR * x + np.sqrt(1 - COLLINEAR**2) * other
    return pd.DataFrame({"x": x, "z": z, "y": 0.5 * x + 0.5 * z + noise})


def _interaction(generator: Generator, n_rows: int) -> pd.DataFrame:
    table = _normal(generator, n_rows)
    return table.assign(y=table["y"] - 0.5 * table["x"] - 0.5 * table["z"] + 0.5 * table["x"] * table["z"])


def _square(generator: Generator, n_rows: int) -> pd.DataFrame:
    table = _normal(generator, n_rows)
    return table.assign(y=table["y"] - 0.5 * table["x"] - 0.5 * table["z"] + 0.5 * table["x"] ** 2)


def _survival(generator: Generator, n_rows: int) -> pd.DataFrame:
    """Times of a Cox model with an interaction, of which about 28% are censored."""
    table = _normal(generator, n_rows)
    x, z = table["x"], table["z"]
    event = generator.exponential(np.exp(-0.5 * (x + z + x * z)))
    censored = generator.exponential(2.5, size=n_rows)
    return table.assign(y=np.minimum(event, censored), died=(event <= censored).astype(np.int64))


def _clusters(generator: Generator, n_rows: int) -> pd.DataFrame:
    """Pupils of schools with numeric codes, whose y, given x, has an intraclass correlation."""
    n_groups = n_rows // IN_CLUSTER
    school = np.repeat(generator.permutation(n_groups) + 100, IN_CLUSTER)
    shared, own = _intercepts(generator, n_groups, IN_CLUSTER)
    x = generator.normal(size=n_rows)
    return pd.DataFrame({"school": school, "x": x, "y": 0.5 * x + shared + own})


def _panel(generator: Generator, n_rows: int) -> pd.DataFrame:
    """People in long form, whose y rises by 0.5 from wave to wave."""
    n_people = n_rows // WAVES
    person = np.repeat(generator.permutation(n_people) + 1000, WAVES)
    wave = np.tile(np.arange(WAVES), n_people)
    shared, own = _intercepts(generator, n_people, WAVES)
    return pd.DataFrame({"id": person, "wave": wave, "y": 0.5 * wave + shared + own})


def _intercepts(generator: Generator, n_groups: int, size: int) -> tuple[Floats, Floats]:
    """Returns effects of groups and of rows, with variances that add up to 1."""
    shared = np.sqrt(CORRELATION) * generator.normal(size=n_groups)
    return shared.repeat(size), np.sqrt(1 - CORRELATION) * generator.normal(size=n_groups * size)


_NINE = tuple(f"x{j}" for j in range(1, N_NORMAL + 1))
_NINE_FORMULA = f"y ~ {' + '.join(_NINE)}"
_HALVES = {"x": 0.5, "z": 0.5}

DESIGNS: Mapping[str, Design] = {
    "normal covariate": Design(_normal, Missing(("x",), 1.5, 0.3), "y ~ x + z", {"x": 1.0, "z": 1.0}),
    "three levels, strong": Design(
        _levels((0.0, 1.0, 2.0)),
        Missing(("x",), 1.5, 0.4),
        "y ~ C(x) + z",
        {"C(x)[T.b]": 1.0, "C(x)[T.c]": 2.0, "z": 0.5},
    ),
    "three levels, mild": Design(
        _levels((0.0, 0.5, 1.0)),
        Missing(("x",), 0.8, 0.3),
        "y ~ C(x) + z",
        {"C(x)[T.b]": 0.5, "C(x)[T.c]": 1.0, "z": 0.5},
    ),
    "two levels": Design(
        _levels((0.0, 1.0)), Missing(("x",), 1.5, 0.4), "y ~ C(x) + z", {"C(x)[T.b]": 1.0, "z": 0.5}
    ),
    "nine normal columns, MCAR": Design(
        _nine_normal, Missing(_NINE, 0.0, 0.2), _NINE_FORMULA, {"x1": 0.5, "x3": 0.0}, coverage=(0.93, 0.98)
    ),
    "nine normal columns, MAR": Design(
        _nine_normal,
        Missing(_NINE[:4], 1.0, 0.2),
        _NINE_FORMULA,
        {"x1": 0.5, "x3": 0.0},
        coverage=(0.93, 0.98),
    ),
    "log-normal covariate": Design(
        _log_normal, Missing(("x",), 1.0, 0.3), "y ~ x + z", _HALVES, coverage=(0.9, 1.0)
    ),
    "Poisson outcome": Design(
        _counts,
        Missing(("x",), 1.0, 0.3),
        "y ~ x + z",
        {"x": 0.4, "z": 0.3},
        model="poisson",
        coverage=(0.9, 1.0),
    ),
    "five ordered values": Design(_ordinal, Missing(("x",), 1.0, 0.3), "y ~ x + z", _HALVES),
    "semi-continuous covariate": Design(_semicontinuous, Missing(("x",), 1.0, 0.3), "y ~ x + z", _HALVES),
    "collinear covariates": Design(_collinear, Missing(("x", "z"), 1.0, 0.25), "y ~ x + z", _HALVES),
    "interaction": Design(
        _interaction,
        Missing(("x",), 1.0, 0.3),
        "y ~ x * z",
        {"x": 0.5, "z": 0.5, "x:z": 0.5},
        claimed=False,
    ),
    "square": Design(
        _square,
        Missing(("x",), 1.0, 0.3),
        "y ~ x + I(x ** 2) + z",
        {"x": 0.5, "I(x ** 2)": 0.5, "z": 0.5},
        claimed=False,
    ),
    "interaction, analysis given": Design(
        _interaction,
        Missing(("x",), 1.0, 0.3),
        "y ~ x * z",
        {"x": 0.5, "z": 0.5, "x:z": 0.5},
        options={"analysis": "y ~ x * z"},
    ),
    "square, analysis given": Design(
        _square,
        Missing(("x",), 1.0, 0.3),
        "y ~ x + I(x ** 2) + z",
        {"x": 0.5, "I(x ** 2)": 0.5, "z": 0.5},
        options={"analysis": "y ~ x + I(x ** 2) + z"},
    ),
    "Cox model, analysis given": Design(
        _survival,
        Missing(("x",), 1.0, 0.3),
        "Surv(y, died) ~ x * z",
        {"x": 0.5, "z": 0.5, "x:z": 0.5},
        model="cox",
        options={"analysis": "Surv(y, died) ~ x * z"},
    ),
    "clusters, groups given": Design(
        _clusters,
        Missing(("y",), 1.0, 0.3, through="x"),
        "y ~ x",
        {"x": 0.5, INTRACLASS: CORRELATION},
        model="random intercepts",
        options={"groups": "school"},
    ),
    "repeated measurements, groups given": Design(
        _panel,
        DropOut(),
        "y ~ 0 + C(wave)",
        {"C(wave)[3]": 1.5, INTRACLASS: CORRELATION},
        model="random intercepts",
        options={"groups": "id"},
    ),
}
"""The designs of the experiment; the place of each is part of the seed of its tables, so append new ones."""
