"""What averages of predictors share: parameters, cross-validation and saving."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.utils.validation import check_is_fitted

from halfseen.data.codes import code_settings
from halfseen.estimators._documented import documented_by
from halfseen.estimators._members import WithMembers, check_reads_codes
from halfseen.estimators._parameters import check_number, check_whole
from halfseen.estimators._table import TableEstimator
from halfseen.estimators._transaction import all_or_nothing
from halfseen.estimators.catalogue import find_method
from halfseen.estimators.predictor_names import build_named, catalogue_name, predictor_names

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]

DEFAULT = ("boosting", "neumiss", "circuit", "sparsity-norm")
FEWEST_ROWS = 50  # with fewer, weights are equal

documented = documented_by(
    {
        "predictors": (
            "list of str, or dict of str to dict",
            "The names of predictors, such as ``'boosting'``, or for each name the parameters that differ "
            f"from its defaults; by default {', '.join(DEFAULT)}. Names such as ``'gaussian+linear'`` are "
            "imputation and then prediction; all names are in the error about an unknown one.",
        ),
        "weights": (
            "dict of str to float",
            "The weights of predictors that were found elsewhere, by their names; those that are not named "
            "have none. By default they are found by cross-validation.",
        ),
        "n_splits": ("int", "The number of folds by which weights are found."),
    }
)


@dataclass(eq=False, repr=False)
class Averaging(WithMembers, TableEstimator):
    """An average of predictors; a subclass says what is predicted and how weights are found."""

    _saved: ClassVar[tuple[str, ...]] = ("weights_",)
    _kind: ClassVar[str] = ""  # how the names of members end in the catalogue
    _calibrates: ClassVar[bool] = False  # whether held-out rows are needed even if weights are given
    _n_questions: ClassVar[int] = 1

    predictors: Any = None
    _: KW_ONLY
    weights: Mapping[str, float] | None = None
    n_splits: int = 5
    schema: Any = None
    random_state: Any = None

    @all_or_nothing
    def fit(self, X: Any, y: Any) -> Any:
        """Finds the weights, then fits every predictor that has one to all rows.

        Parameters
        ----------
        X : pandas, polars or pyarrow table, or array-like of shape (n_samples, n_features)
            Missing cells are None, NaN, NaT, NA or null.
        y : array-like of shape (n_samples,)
            The target, without missing values.
        """
        settings = self._checked_settings()
        read = self._read(X, reset=True)
        target = self._read_target(y, read.table.n_rows)
        if not self._modelled:
            raise self._nothing_to_learn(read.table.n_rows)
        codes, given = read.codes.to_array(), self._given_weights(settings)
        names = list(settings) if given is None else [name for name in given if given[name] > 0]
        folds = self._folds(target)
        if len(names) == 1 or given is not None:
            folds = folds[:1] if self._calibrates else []  # weights are not to be found
        answers, rows = self._out_of_fold({name: settings[name] for name in names}, codes, target, folds)
        weights = np.full(len(names), 1.0 / len(names))
        if given is not None:
            weights = np.array([given[name] for name in names])
        elif len(names) > 1 and folds:
            weights = self._weigh(answers, target[rows])
        self._calibrate(np.tensordot(weights, answers, axes=1), target[rows])
        found = dict(zip(names, weights.tolist(), strict=True))
        self.weights_ = {name: found[name] for name in sorted(found) if found[name] > 0}
        self.members_ = [self._make(name, settings).fit(codes, target) for name in self.weights_]
        return self

    def _read_target(self, y: Any, n_rows: int) -> npt.NDArray[Any]:
        raise NotImplementedError

    def _stratify(self, target: npt.NDArray[Any]) -> bool:
        return False

    def _questions(self, member: Any, codes: Floats, truth: npt.NDArray[Any]) -> Floats:
        """Returns what is asked of a member about rows that it was not fitted to (Q, N)."""
        raise NotImplementedError

    def _weigh(self, answers: Floats, truth: npt.NDArray[Any]) -> Floats:
        """Returns the weights (M), by the answers of the members (M, Q, N)."""
        raise NotImplementedError

    def _calibrate(self, answers: Floats, truth: npt.NDArray[Any]) -> None:
        """Learns from the average of the answers (Q, N), without rows if there are too few."""

    def _make(self, name: str, settings: Mapping[str, Mapping[str, Any]]) -> Any:
        seed = np.random.default_rng([self.seed_, *name.encode()]).integers(2**31)
        own = {"random_state": int(seed), **settings[name], "schema": code_settings(self._modelled)}
        return build_named(name, self._kind, **own)

    def _out_of_fold(
        self,
        settings: Mapping[str, Mapping[str, Any]],
        codes: Floats,
        target: npt.NDArray[Any],
        folds: Sequence[tuple[Rows, Rows]],
    ) -> tuple[Floats, Rows]:
        """Returns the answers of members (M, Q, N) about the test rows of all folds, and these rows (N)."""
        parts, rows = [np.zeros((len(settings), self._n_questions, 0))], [np.zeros(0, dtype=np.int64)]
        for train, test in folds:
            members = [self._make(name, settings).fit(codes[train], target[train]) for name in settings]
            parts.append(np.stack([self._questions(one, codes[test], target[test]) for one in members]))
            rows.append(test)
        return np.concatenate(parts, axis=2), np.concatenate(rows)

    def _folds(self, target: npt.NDArray[Any]) -> list[tuple[Rows, Rows]]:
        """Returns training and test rows of each fold; none if there are too few rows to find weights by."""
        if len(target) < max(FEWEST_ROWS, 2 * self.n_splits):
            return []
        kind = StratifiedKFold if self._stratify(target) else KFold
        splitter = kind(self.n_splits, shuffle=True, random_state=self.seed_ % 2**31)
        folds = list(splitter.split(target, target))
        varies = all(len(np.unique(target[train])) > 1 for train, _ in folds)
        return folds if varies else []

    def _codes(self, X: Any) -> Floats:
        """Returns the inputs of the members."""
        check_is_fitted(self)
        return self._read(X, reset=False).codes.to_array()

    def _answers(self, codes: Floats, question: str, **arguments: Any) -> list[Any]:
        """Returns the answers of all members to one question."""
        return [getattr(member, question)(codes, **arguments) for member in self.members_]

    def _average(self, answers: Sequence[Any]) -> Floats:
        parts = [w * np.asarray(one) for w, one in zip(self.weights_.values(), answers, strict=True)]
        total: Floats = np.sum(parts, axis=0)
        return total

    def _checked_settings(self) -> dict[str, Mapping[str, Any]]:
        """Returns the parameters of each predictor by its name."""
        check_whole("n_splits", self.n_splits, 2)
        given = DEFAULT if self.predictors is None else self.predictors
        settings = dict(given) if isinstance(given, Mapping) else {}
        if isinstance(given, list | tuple):
            settings = {name: {} for name in given if isinstance(name, str)}
        if not settings or len(settings) < len(given):
            raise ValueError(
                "predictors must be a list of different names, or a dict of parameters by name, got "
                f"{given!r}."
            )
        known = predictor_names(self._kind)
        for name, parameters in settings.items():
            if name not in known:
                raise ValueError(f"predictors has {name!r}; choose from {', '.join(known)}.")
            if not isinstance(parameters, Mapping):
                raise ValueError(f"The parameters of {name!r} must be a dict, got {parameters!r}.")
        return settings

    def _given_weights(self, settings: Mapping[str, Any]) -> dict[str, float] | None:
        """Returns the weights that the user gave, as shares of one."""
        if self.weights is None:
            return None
        if not isinstance(self.weights, Mapping) or not self.weights:
            raise ValueError(f"weights must be a dict of numbers by name, got {self.weights!r}.")
        for name, weight in self.weights.items():
            if name not in settings:
                raise ValueError(f"weights has {name!r}, which is not among the predictors.")
            check_number(f"weights[{name!r}]", weight, lambda v: 0 <= v < np.inf, "at least 0 and finite")
        total = float(sum(self.weights.values()))
        if total <= 0:
            raise ValueError(f"One of the weights must be positive, got {self.weights!r}.")
        return {name: float(weight) / total for name, weight in self.weights.items()}

    def _set_members(self, members: list[Any], description: Mapping[str, Any]) -> None:
        self.weights_ = {str(name): float(weight) for name, weight in sorted(self.weights_.items())}
        if not self.weights_ or len(members) != len(self.weights_):
            raise ValueError(f"there are {len(self.weights_)} weights of {len(members)} predictors")
        values = np.array(list(self.weights_.values()))
        if not (values > 0).all() or not np.isclose(values.sum(), 1.0):
            raise ValueError(f"the weights {self.weights_!r:.100} do not sum to one")
        for name, member in zip(self.weights_, members, strict=True):
            wanted = find_method(catalogue_name(name, self._kind)).estimator
            if type(member) is not wanted or member.n_features_in_ != len(self._modelled):
                raise ValueError(f"member {name!r:.60} is not a predictor of this table")
            check_reads_codes(member, self._modelled)
        self.members_ = members
