"""Pooled intervals of regression coefficients after multiple imputation by default: bias and coverage.

Tables of several kinds have covariates that are missing at random, mostly through the outcome. Each table is
completed 20 times by `halfseen.multiple_imputation` with default settings, and the analysis is pooled by
`halfseen.pool`. A 95% interval should contain the true coefficient in 95% of the tables, and the bias should
be small compared with the standard deviation of the estimates. The joint Gaussian stands beside, and so do
draws of the mixture that `AutoImputer` chooses: they ignore that its parameters are uncertain and are not
meant for pooling, so `pool` warns. Two further methods show which part of a bias belongs to the tables: the
analysis of the complete tables, and, where a covariate is skewed or the outcome is a count, the estimate of
maximum likelihood by the observed values under the model from which the tables are drawn.

A run is a block of repetitions of a setting, because a single one says little. The Monte Carlo error counts:
with 100 repetitions a coverage of 95% has a 95% interval of about 89 to 98%, with 400 of about 92 to 97%, and
with 1,000 of about 93.5 to 96.2%. Settings in which 400 tables did not decide have 1,000. Some constants of
the library were chosen on the first tables of a setting, so these settings have other tables (`FRESH`).
`papers.library.mice` stores what the R package mice finds on the same tables.
"""

import json
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import patsy
import statsmodels.api as sm
import statsmodels.formula.api as smf
from scipy.optimize import minimize, minimize_scalar
from scipy.special import gammaln, logsumexp
from scipy.stats import norm
from scipy.stats import t as student_t
from statsmodels.tools.numdiff import approx_hess

from halfseen.auto.imputer import AutoImputer
from halfseen.errors import HalfseenWarning
from halfseen.gaussian.imputer import GaussianImputer
from halfseen.pooling import pool
from halfseen.pooling.analysis import Analysis
from halfseen.pooling.multiple import multiple_imputation
from halfseen.pooling.survival import build_cox, fit_cox, read_survival
from papers.claims import Covers, Published, Setting, Unbiased
from papers.library.inference_tables import DESIGNS, INTRACLASS, Design, Simulated, simulate
from papers.spec import Budget, Experiment

Floats = npt.NDArray[np.float64]

LEVEL, N_DRAWS = 0.95, 20
BLOCK = 25  # repetitions of a run, which takes about ten seconds
DEFAULT, JOINT, CHOSEN = "default", "GaussianImputer", "AutoImputer, sample"
COMPLETE, TRUE = "complete tables", "maximum likelihood, true model"
MICE_FILE = Path(__file__).parents[2] / "results" / "inference-mice.json"
BIAS, VARIANCE, COVERAGE, WIDTH, SECONDS = "bias", "variance", "coverage", "width", "CPU seconds"
MOST_BIAS = 0.1  # standard deviations of the estimate; a smaller bias hardly changes the coverage


@dataclass(frozen=True)
class Task:
    """The tables of a block, their design, and the intervals of the complete tables."""

    design: Design
    tables: Sequence[Simulated]
    widths: Floats


def make_task(setting: Setting, block: int) -> Task:
    """Returns the tables of a block of repetitions, from the first one that the setting may state."""
    design, each = DESIGNS[setting["table"]], setting["repetitions"]
    first = setting.get("first", 0) + block * each
    tables = [simulate(setting, repetition) for repetition in range(first, first + each)]
    return Task(design, tables, np.stack([complete_widths(design, one.complete) for one in tables]))


def fit_complete(design: Design, complete: pd.DataFrame) -> pd.DataFrame:
    """Returns estimates and the ends of intervals by coefficient, if nothing is missing."""
    if design.model == "random intercepts":
        return _fit_complete_groups(design, complete)
    survival = read_survival(design.formula)
    if survival is not None:
        fitted = fit_cox(build_cox(survival, complete))
    else:
        fitted = getattr(smf, design.model)(design.formula, complete).fit(disp=0)
    low, high = np.asarray(fitted.conf_int(1 - LEVEL)).T
    found = {"estimate": np.asarray(fitted.params), "error": np.asarray(fitted.bse), "low": low, "high": high}
    return pd.DataFrame(found, index=list(fitted.model.exog_names)).loc[list(design.truth)]


def _fit_complete_groups(design: Design, complete: pd.DataFrame) -> pd.DataFrame:
    found = prepare(design, complete)(complete)
    assert found.names is not None
    error = np.sqrt(found.covariance)
    half = float(student_t.ppf((1 + LEVEL) / 2, found.df_complete)) * error
    columns = {"estimate": found.estimate, "low": found.estimate - half, "high": found.estimate + half}
    mapped = {
        name: _as_correlations(values, found.names, complete, design.options["groups"])
        for name, values in columns.items()
    }
    # The error of a correlation is on its scale by the delta method, from half of its interval.
    mapped["error"] = (mapped["high"] - mapped["low"]) / 2 * error / half
    return pd.DataFrame(mapped, index=list(found.names)).loc[list(design.truth)]


def fit_random_intercepts(
    outcome: Floats, rows: Floats, groups: npt.ArrayLike, names: Sequence[str]
) -> Analysis:
    r"""Fits a regression with random intercepts of groups of one size by restricted maximum likelihood.

    The last estimate is the logarithm of :math:`F = (1 + (k - 1) \rho) / (1 - \rho)` for groups of k rows,
    with :math:`\rho` the intraclass correlation. Its variance for n groups, :math:`2 k / ((k - 1) (n - 2))`,
    is four times that of Fisher's :math:`z = \frac{1}{2} \log F`.

    References
    ----------
    Fisher (1925), Statistical Methods for Research Workers, chapter 7.
    """
    both = np.column_stack([outcome, rows])
    codes, known = pd.factorize(np.asarray(groups))
    n_groups, size = len(known), len(codes) // len(known)
    means = np.zeros((n_groups, both.shape[1]))
    np.add.at(means, codes, both / size)
    products, between = both.T @ both, size * means.T @ means
    df = len(both) - both.shape[1] + 1

    def solve(log_f: float) -> tuple[float, Floats, Floats]:
        """Returns -2 times the restricted log likelihood, coefficients and their covariance matrix."""
        weighted = products + np.expm1(-log_f) * between  # cross-products of rows less a share of their means
        inverse = np.linalg.inv(weighted[1:, 1:])
        beta = inverse @ weighted[1:, 0]
        squares = weighted[0, 0] - weighted[1:, 0] @ beta
        value = df * np.log(squares) + n_groups * log_f - np.linalg.slogdet(inverse)[1]
        return float(value), beta, inverse * squares / df

    log_f = float(minimize_scalar(lambda one: solve(one)[0], bounds=(0, 10), method="bounded").x)
    _, beta, covariance = solve(log_f)
    spread = np.append(np.diag(covariance), 2 * size / ((size - 1) * (n_groups - 2)))
    df_complete = len(both) - n_groups - len(beta)
    return Analysis((*names, INTRACLASS), np.append(beta, log_f), spread, df_complete)


def _as_correlations(values: Floats, names: Sequence[str], table: pd.DataFrame, group: str) -> Floats:
    """Returns estimates or ends of intervals with an intraclass correlation in place of its log F."""
    size = len(table) // table[group].nunique()
    excess = np.expm1(values)
    return np.where(np.array(names) == INTRACLASS, excess / (excess + size), values)


def complete_widths(design: Design, complete: pd.DataFrame) -> Floats:
    """Returns the widths of the intervals of the reported coefficients if nothing is missing."""
    found = fit_complete(design, complete)
    return np.asarray(found["high"] - found["low"], np.float64)


def draw_by_default(table: Simulated, design: Design) -> Any:
    """Returns completed tables of the default of `multiple_imputation`."""
    return multiple_imputation(table.shown, n_draws=N_DRAWS, random_state=table.seed, **design.options)


def draw_jointly(table: Simulated, design: Design) -> Any:
    """Returns completed tables of a joint Gaussian whose parameters are drawn."""
    return multiple_imputation(table.shown, GaussianImputer(), n_draws=N_DRAWS, random_state=table.seed)


def draw_chosen(table: Simulated, design: Design) -> Any:
    """Returns draws of the mixture that `AutoImputer` chooses, whose parameters are fixed."""
    return AutoImputer(random_state=table.seed).fit(table.shown).sample(table.shown, n_draws=N_DRAWS)


def analyse_complete(table: Simulated, design: Design) -> pd.DataFrame:
    """Returns estimates and intervals of the table without missing values."""
    return fit_complete(design, table.complete)


NORMAL_SCORES: dict[str, Callable[[Floats], Floats]] = {
    "log-normal covariate": np.exp,
    "Poisson outcome": lambda score: score,
}
"""How x follows from a normal score that is linear in z, where the true model is fitted."""
_NODES = np.linspace(-7.0, 7.0, 201)  # five times as many change no digit that is reported
_LOG_WEIGHTS = norm.logpdf(_NODES) + np.log(_NODES[1] - _NODES[0])


def fit_true_model(table: Simulated, design: Design) -> pd.DataFrame:
    r"""Fits the model of the tables to the observed values by maximum likelihood.

    .. math::
        u \mid z \sim \mathcal{N}(a_0 + a_1 z, s^2), \quad x = g(u), \quad
        y \mid x, z \sim \mathcal{N}(\eta, t^2) \text{ or } \operatorname{Poisson}(e^\eta), \quad
        \eta = b_0 + b_1 x + b_2 z

    A missing x is integrated over, by the trapezoidal rule. Intervals are those of the observed information.
    """
    place = NORMAL_SCORES[next(name for name, one in DESIGNS.items() if one is design)]
    shown = table.shown.sort_values("x", na_position="last")
    y, z = (shown[name].to_numpy(np.float64) for name in ("y", "z"))
    x = shown["x"].dropna().to_numpy(np.float64)
    n, linear = len(x), design.model == "ols"
    score = np.log(x) if place is np.exp else x

    def of_outcome(y: Floats, index: Floats, log_scale: float) -> Floats:
        found = (
            norm.logpdf(y, index, np.exp(log_scale)) if linear else y * index - np.exp(index) - gammaln(y + 1)
        )
        return np.asarray(found)

    def loss(values: Floats) -> float:
        a, b, log_s, log_t = values[:2], values[2:5], values[5], values[-1]
        mean = a[0] + a[1] * z
        known = norm.logpdf(score, mean[:n], np.exp(log_s))
        known = known + of_outcome(y[:n], b[0] + b[1] * x + b[2] * z[:n], log_t)
        drawn = place(mean[n:, None] + np.exp(log_s) * _NODES)
        index = b[0] + b[1] * drawn + b[2] * z[n:, None]
        return -float(
            known.sum() + logsumexp(of_outcome(y[n:, None], index, log_t) + _LOG_WEIGHTS, axis=1).sum()
        )

    first, rows = sm.OLS(score, sm.add_constant(z[:n])).fit(), np.column_stack([np.ones(n), x, z[:n]])
    second = sm.OLS(y[:n], rows).fit() if linear else sm.Poisson(y[:n], rows).fit(disp=0)
    scales = [np.log(one.scale) / 2 for one in ((first, second) if linear else (first,))]
    start = np.concatenate([first.params, second.params, scales])
    fitted = np.asarray(minimize(loss, start, method="BFGS").x, np.float64)
    hessian = approx_hess(fitted, loss)
    estimate, error = fitted[3:5], np.sqrt(np.diag(np.linalg.inv(hessian))[3:5])
    half = norm.ppf((1 + LEVEL) / 2) * error
    found = {"estimate": estimate, "error": error, "low": estimate - half, "high": estimate + half}
    return pd.DataFrame(found, index=["x", "z"])


def score(draw: Callable[[Simulated, Design], Any], task: Task) -> dict[str, float]:
    """Completes and analyses every table of a block, and compares the intervals with the truth.

    A method may also return estimates and intervals, as `fit_complete` does, in place of completed tables.
    """
    estimates, ends = [], []
    began = time.process_time()
    with warnings.catch_warnings():
        # That draws of the choice should not be pooled, or that the analysis has an interaction or a power.
        warnings.simplefilter("ignore", HalfseenWarning)
        for table in task.tables:
            found = draw(table, task.design)
            if isinstance(found, pd.DataFrame):
                estimate, interval = found["estimate"].to_numpy(), found[["low", "high"]].to_numpy().T
            else:
                estimate, interval = analyse(task.design, found)
            estimates.append(estimate)
            ends.append(interval)
    seconds = (time.process_time() - began) / len(task.tables)
    return summarise(task, np.stack(estimates), np.stack(ends)) | {SECONDS: seconds}


def prepare(design: Design, first: pd.DataFrame) -> Callable[[pd.DataFrame], Analysis]:
    """Returns the analysis of a formula for `pool`, which reads the formula once instead of for each table.

    Reading it takes more time than all of the rest of a repetition.
    """
    infos = [matrix.design_info for matrix in patsy.dmatrices(design.formula, first)]
    names = tuple(infos[1].column_names)

    def fit(table: pd.DataFrame) -> Analysis:
        values = {name: table[name].to_numpy() for name in table}
        read = patsy.build_design_matrices(infos, values, NA_action="raise")
        outcome, rows = np.asarray(read[0])[:, 0], np.asarray(read[1])
        if design.model == "random intercepts":
            return fit_random_intercepts(outcome, rows, values[design.options["groups"]], names)
        fitted = (
            sm.OLS(outcome, rows).fit() if design.model == "ols" else sm.Poisson(outcome, rows).fit(disp=0)
        )
        return Analysis(names, fitted.params, fitted.cov_params(), float(fitted.df_resid))

    return fit


def analyse(design: Design, tables: Any) -> tuple[Floats, Floats]:
    """Returns pooled estimates of the reported coefficients, and both ends of their intervals."""
    pooled = pool(design.formula if design.model == "cox" else prepare(design, tables[0]), tables)
    found = [pooled.estimate, *pooled.interval(LEVEL)]
    if design.model == "random intercepts":
        group = design.options["groups"]
        found = [_as_correlations(values, pooled.names, tables[0], group) for values in found]
    places = [pooled.names.index(name) for name in design.truth]
    return found[0][places], np.stack(found[1:])[:, places]


def summarise(task: Task, estimates: Floats, ends: Floats) -> dict[str, float]:
    """Returns the scores of a block.

    Parameters
    ----------
    task : Task
        The block.
    estimates : ndarray of shape (n_tables, n_coefficients)
        The pooled estimates of the reported coefficients.
    ends : ndarray of shape (n_tables, 2, n_coefficients)
        The ends of their intervals.
    """
    truth = np.array(list(task.design.truth.values()))
    inside = (ends[:, 0] <= truth) & (truth <= ends[:, 1])
    found = {
        BIAS: (estimates - truth).mean(axis=0),
        VARIANCE: estimates.var(axis=0, ddof=1),
        COVERAGE: inside.mean(axis=0),
        WIDTH: (ends[:, 1] - ends[:, 0]).mean(axis=0) / task.widths.mean(axis=0),
    }
    return {
        f"{score} of {name}": float(value)
        for score, values in found.items()
        for name, value in zip(task.design.truth, values, strict=True)
    }


@cache
def _read_mice(path: Path) -> dict[tuple[str, int], dict[str, Any]]:
    """Returns the stored scores of mice by table and number of rows."""
    if not path.exists():
        return {}
    stored = json.loads(path.read_text(encoding="utf-8"))
    label = f"mice {stored['versions']['mice']}"
    return {(one["table"], one["rows"]): one | {"label": label} for one in stored["cells"]}


def mice_number(setting: Setting, model: str, metric: str) -> Published | None:
    """Returns what mice found on the first tables of a setting, beside the default."""
    found = _read_mice(MICE_FILE).get((setting["table"], setting["rows"]))
    if model != DEFAULT or found is None or metric not in found["scores"]:
        return None
    return Published(found["scores"][metric], label=f"{found['label']}, {found['repetitions']} tables")


_SIZES: dict[str, tuple[int, ...]] = {
    "normal covariate": (200,),
    "three levels, strong": (300, 1_000, 4_000),
    "two levels": (300, 1_000, 4_000),
    "nine normal columns, MCAR": (30, 60),
    "nine normal columns, MAR": (30, 60),
    "clusters, groups given": (400,),
    "repeated measurements, groups given": (1_200,),
}
SIZES = {name: _SIZES.get(name, (300,)) for name in DESIGNS}
"""The numbers of rows of each design."""


FRESH = (
    "nine normal columns, MCAR",
    "nine normal columns, MAR",
    "log-normal covariate",
    "Poisson outcome",
    "semi-continuous covariate",
)
"""Designs on whose first tables a rule or a constant was chosen, or a cause of bias was found."""
FIRST_FRESH = 10_000  # the number of their first table that no choice has seen
UNDECIDED = (("three levels, mild", 300), ("two levels", 300), *((name, 30) for name in FRESH[:2]))
"""The settings that have 1,000 tables at the scale "paper", because 400 did not decide."""


def _budget(n_blocks: int, repetitions: int, models: Sequence[str], names: Sequence[str]) -> Budget:
    settings = tuple(
        {"rows": rows, "table": name, "repetitions": repetitions} for name in names for rows in SIZES[name]
    )
    return Budget(settings, n_blocks, tuple(models))


def _confirming(models: Sequence[str], names: Sequence[str]) -> Budget:
    """Returns 400 or 1,000 tables of each setting, which are new ones where a choice has seen the first."""
    parts = []
    for name in names:
        for rows in SIZES[name]:
            setting = {"rows": rows, "table": name, "repetitions": BLOCK}
            setting |= {"first": FIRST_FRESH} if name in FRESH else {}
            n_blocks = 40 if (name, rows) in UNDECIDED else 16
            parts.append(Budget((setting,), n_blocks, tuple(models)))
    return sum(parts[1:], parts[0])


def _claims() -> list[Covers | Unbiased]:
    """Returns claims about the default, for every analysis that it is meant for."""
    found: list[Covers | Unbiased] = []
    for name, design in DESIGNS.items():
        for rows in SIZES[name] if design.claimed else ():
            where = {"table": name, "rows": rows}
            low, high = design.coverage
            found.append(Covers(DEFAULT, [f"{COVERAGE} of {c}" for c in design.truth], low, high, where))
            pairs = {f"{BIAS} of {c}": f"{VARIANCE} of {c}" for c in design.truth}
            found.append(Unbiased(DEFAULT, pairs, MOST_BIAS, where))
    return found


_BETTER = {COVERAGE: "higher", BIAS: "lower", VARIANCE: "lower", WIDTH: "lower"}
_COEFFICIENTS = dict.fromkeys(name for design in DESIGNS.values() for name in design.truth)
_FIRST = next(iter(DESIGNS))
_NORMAL = (_FIRST, "nine normal columns, MCAR", "nine normal columns, MAR", "collinear covariates")
_GROUPED = [name for name, design in DESIGNS.items() if "groups" in design.options]
# Where the default is not the joint Gaussian, which has no effects of groups.
_NOT_NORMAL = [name for name in DESIGNS if name not in (*_NORMAL, *_GROUPED)]

EXPERIMENT = Experiment(
    name="inference",
    question="Are coefficients unbiased, and do their intervals cover, after multiple imputation by default?",
    paper="no paper: the level of the intervals is what is expected; mice on the first of the same tables",
    make_data=make_task,
    models={
        DEFAULT: lambda: draw_by_default,
        JOINT: lambda: draw_jointly,
        CHOSEN: lambda: draw_chosen,
        COMPLETE: lambda: analyse_complete,
        TRUE: lambda: fit_true_model,
    },
    score=score,
    metrics={f"{score} of {name}": better for score, better in _BETTER.items() for name in _COEFFICIENTS}
    | {SECONDS: "lower"},
    budgets={
        "smoke": _budget(1, 2, [DEFAULT, JOINT], [_FIRST, "three levels, strong"]),
        "small": _budget(4, BLOCK, [DEFAULT], _NOT_NORMAL)
        + _budget(2, BLOCK, [JOINT], _NOT_NORMAL)
        + _budget(4, BLOCK, [DEFAULT], [*_NORMAL, *_GROUPED]),
        "paper": _confirming([DEFAULT, COMPLETE], list(DESIGNS))
        + _confirming([TRUE], list(NORMAL_SCORES))
        + _budget(4, BLOCK, [JOINT], _NOT_NORMAL)
        + _budget(4, BLOCK, [CHOSEN], [_FIRST]),
    },
    claims=_claims(),
    numbers=mice_number,
)
