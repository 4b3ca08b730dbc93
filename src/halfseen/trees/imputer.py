"""The imputer with chained boosted trees."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace

from torch import Tensor

from halfseen._random import torch_generator
from halfseen.base.capabilities import Capabilities
from halfseen.base.imputer import BaseImputer
from halfseen.base.parameters import IMPUTER_ATTRIBUTES, check_number, check_whole, documented_by
from halfseen.base.table import predictor_positions
from halfseen.data.incomplete import Incomplete
from halfseen.gaussian.imputer import GaussianImputer
from halfseen.gaussian.tabular import TabularGaussian
from halfseen.trees.fitting import TreeSettings, fit_trees
from halfseen.trees.forest import MAX_LEAVES
from halfseen.trees.growth import Growth
from halfseen.trees.tabular import TabularTrees

MATCHING = {"auto": None, True: True, False: False}


@documented_by({}, IMPUTER_ATTRIBUTES)
@dataclass(eq=False, repr=False)
class TreeImputer(BaseImputer):
    r"""Imputation by chained boosted trees, with a distribution for every missing value.

    .. math:: x_c \mid x_{\setminus c} = \mu_c(x_{\setminus c}) + \sigma_c(x_{\setminus c}) \, \varepsilon_c

    Use it for tables with thresholds and interactions between columns. A `GaussianImputer` completes each
    row; then, in `n_rounds` rounds, the missing values of each column are predicted again from the completed
    rest of the row, by scikit-learn's gradient boosting. The trees predict corrections of the previous
    prediction, so that nothing changes if the Gaussian fits well. If the Gaussian knows some values of a
    column far better than others, as in a near-copy of another column, corrections are relative to its
    standard deviation, provided that this predicts held-out values better. Categories are not encoded as
    numbers.

    In `fit`, every observed value is hidden once, together with others of its row, and trees learn to predict
    the hidden values. Columns that are complete in training can therefore be imputed as well. Residuals are
    computed on rows on which the trees were not grown, so that intervals are not too narrow: the
    location :math:`\mu` and the scale :math:`\sigma` are sums of trees, and :math:`\varepsilon` has the
    empirical distribution of the residuals of values with a similar location. Probabilities of levels are
    calibrated on the same rows. `transform` never refits. Values are assumed to be missing at random (MAR).

    Draws follow the chain rule: missing levels are drawn one after the other, then all missing numbers
    together, with the dependence between them taken from the Gaussian. The conditional distributions do not
    belong to one joint density, so there is no `score_samples`. For proper multiple imputation, which
    includes the uncertainty of the fit, use `multiple_imputation` or `BootstrapImputer` with this imputer.

    Parameters
    ----------
    n_rounds : int, default=2
        The number of rounds of the chain. With 0 the imputer is a `GaussianImputer`.
    max_trees : int, default=80
        Maximum number of boosting iterations for each column in each round. From 400 values on, growth stops
        early when held-out values are no longer predicted better; with fewer there are at most 30.
    learning_rate : float, default=0.1
        The factor of each tree.
    max_leaf_nodes : int, default=15
        Maximum number of leaves of a tree, from 2 to 64.
    min_samples_leaf : int, default=20
        Minimum number of values in a leaf.
    max_predictors : int, default=40
        Maximum number of columns from which a column is predicted: those that correlate with it most.
    predictors : dict of str to list of str, optional
        The columns that may predict a column, by its name; columns that are not named are predicted from all
        others. A missing predictor is itself imputed from its own predictors. By default there is no limit.
    max_rows : int, default=10000
        Maximum number of rows on which trees are grown, chosen at random; they have at most two million
        cells. The Gaussian is fitted to all rows.
    matching : {"auto"} or bool, default="auto"
        Predictive mean matching: whether draws of numbers are observed values of rows with a similar
        prediction, instead of the prediction plus a residual. ``"auto"`` uses, for each column, what
        predicts held-out values best: the prediction plus a residual; the same moved to the nearest observed
        value, if half of the values occur more than once; or matching, if there are at most 30 distinct
        values, or one value, such as zero, is found in a tenth of the rows.

    Attributes
    ----------
    gaussian_columns_ : list of str
        The columns that are imputed by the Gaussian alone; see the notes.
    model_ : TabularTrees
        The fitted model. ``model_.rounds`` has the trees of each column in each round, as arrays.

    Notes
    -----
    A column with fewer than 40 observed values in the rows on which trees are grown, or with more than 40
    ordered levels, is left to the Gaussian, and so is a table of a single column. If a time limit ends the
    fit, the columns whose turn has not come are left to the Gaussian too. Trees are grown on two thirds of
    the values at a time, and a split needs twice `min_samples_leaf` of these: with fewer than 60 values, by
    default, a column has no trees, and only the bias and the residuals of the Gaussian are estimated.

    References
    ----------
    van Buuren & Groothuis-Oudshoorn (2011), mice, for chained equations; Ke et al. (2017), LightGBM, whose
    algorithm scikit-learn implements; Little (1988), for predictive mean matching.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(1000, 3))
    >>> X[:, 2] = np.where(X[:, 0] * X[:, 1] > 0, 1.0, -1.0) + 0.1 * rng.normal(size=1000)
    >>> imputer = TreeImputer(random_state=0).fit(X)
    >>> imputer.transform([[0.5, 0.5, np.nan], [0.5, -0.5, np.nan]])[:, 2].round()
    array([ 1., -1.])
    """

    n_rounds: int = 2
    _: KW_ONLY
    max_trees: int = 80
    learning_rate: float = 0.1
    max_leaf_nodes: int = 15
    min_samples_leaf: int = 20
    max_predictors: int = 40
    predictors: Mapping[str, Sequence[str]] | None = None
    max_rows: int = 10_000
    matching: bool | str = "auto"

    @property
    def capabilities(self) -> Capabilities:
        """What the imputer can do with the parameters that it has."""
        return replace(
            super().capabilities,
            density=False,
            holds_out_rows=True,
            relates_near_copies=self.predictors is None,
        )

    def _fit_model(self, codes: Incomplete) -> TabularTrees:
        self._settings()  # refuses parameters before time is spent
        start = GaussianImputer()
        start.schema_, start.seed_ = self.schema_, self.seed_
        return self._fit_from(start._fit_model(codes), codes)

    def _fit_from(self, gaussian: TabularGaussian, codes: Incomplete) -> TabularTrees:
        """Grows the trees on codes to which a Gaussian was fitted."""
        settings = self._settings()
        width = max([block.n_groups for block in gaussian.features.blocks], default=1)
        growth = replace(settings.growth, n_categories=width, seed=self.seed_)
        generator = torch_generator(self.seed_)
        settings = replace(settings, growth=growth, limits=predictor_positions(self.predictors, self.schema_))
        return fit_trees(self._modelled, codes, gaussian, settings, generator)

    @property
    def gaussian_columns_(self) -> list[str]:
        """The names of the columns that are imputed by the Gaussian alone, because no tree was grown."""
        model: TabularTrees | None = self.model_
        modelled = self._modelled
        return [] if model is None else [modelled[c].name for c in model.left_to_gaussian]

    def _settings(self) -> TreeSettings:
        whole = {
            "n_rounds": 0,
            "max_trees": 1,
            "max_leaf_nodes": 2,
            "min_samples_leaf": 1,
            "max_predictors": 1,
            "max_rows": 1,
        }
        for name, lowest in whole.items():
            check_whole(name, getattr(self, name), lowest)
        if self.max_leaf_nodes > MAX_LEAVES:
            raise ValueError(f"max_leaf_nodes must be at most {MAX_LEAVES}, got {self.max_leaf_nodes!r}.")
        rate = self.learning_rate
        check_number("learning_rate", rate, lambda v: 0 < v <= 1, "positive and at most 1")
        if not isinstance(self.matching, bool | str) or self.matching not in MATCHING:
            raise ValueError(f"matching must be 'auto', True or False, got {self.matching!r}.")
        growth = Growth(self.max_trees, rate, self.max_leaf_nodes, self.min_samples_leaf, 1, 0)
        matching = MATCHING[self.matching]
        return TreeSettings(self.n_rounds, self.max_predictors, self.max_rows, matching, growth)

    def _model_from_state(self, state: Mapping[str, Tensor]) -> TabularTrees:
        return TabularTrees.from_state(self._modelled, state)

    @property
    def _columns_by_gaussian(self) -> list[str]:
        return self.gaussian_columns_

    @property
    def _width(self) -> int:
        """Counts the features of the Gaussian, and the inputs of the trees of each column."""
        return 2 * super()._width + min(self.max_predictors, len(self._modelled)) + 40
