"""Forged model files with a right checksum: refused, or the model gives finite answers or a clear error."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from conformance.families import DATA
from conformance.registry import IMPUTERS, OTHERS, PREDICTORS, TRANSFORMERS, FamilyRow
from conformance.tables import ARRAY, PENGUINS
from hostile.corruption import read, sign
from hostile.forging import forgeries

import halfseen
from halfseen import (
    BoostingRegressor,
    GaussianImputer,
    GaussianRegressor,
    ImputeThenRegressor,
    MeanImputer,
    MIWAEImputer,
    ModelFileError,
)
from halfseen.circuits import CircuitClassifier
from halfseen.neumiss import (
    NeuMissClassifier,
    NeuMissNetworkClassifier,
    NeuMissNetworkRegressor,
    NeuMissRegressor,
)
from halfseen.ratings import MatrixFactorization
from halfseen.sparsity import SparsityNormClassifier
from halfseen.testing.tables import cells, fit_quietly, hide, missing, stays_empty, take
from skeletons.ratings import RatingMeans

ROWS = (*IMPUTERS, *PREDICTORS, *TRANSFORMERS, *OTHERS)
THREE = {"labels": [0, 1, 2], "dtype": "<i8"}
TWO = {"labels": [0, 1], "dtype": "<i8"}
N_NUMBERS, N_ELEMENTS = 20, 20  # forgeries of each estimator


def table():
    return PENGUINS.make()


def target():
    return np.random.default_rng(0).normal(size=len(table()))


def fitted(row):
    if isinstance(row, FamilyRow):
        return DATA[row.family]().fit(row.make(random_state=0))
    if row in TRANSFORMERS:
        return row.make().fit(ARRAY.make())
    if row in IMPUTERS:
        return fit_quietly(row.make(random_state=0), table())
    return row.make(random_state=0).fit(table(), row.target(target()))


def rows_to_ask(row):
    if isinstance(row, FamilyRow):
        return DATA[row.family]().take(np.arange(6))
    if row in TRANSFORMERS:
        return ARRAY.make()[:8]
    holes = np.random.default_rng(0).random((8, len(table().columns))) < 0.4
    return hide(take(table(), range(8)), holes)


def arrays_of_answers(row, model, rows):
    """Everything that a model says of rows, as arrays."""
    if isinstance(row, FamilyRow):
        return list(rows.ask(model).values())
    if row in TRANSFORMERS:
        return [model.transform(rows)]
    if hasattr(model, "predict"):
        more = "predict_proba" if hasattr(model, "predict_proba") else "predict_interval"
        return [model.predict(rows), *np.atleast_3d(getattr(model, more)(rows))]
    for answer in (model.transform(rows), *model.sample(rows, n_draws=2), *model.interval(rows)):
        own = answer[list(rows.columns)]  # without indicators
        assert not (missing(own) & ~stays_empty(model, rows, own)).any()
        for column in cells(own):
            assert all(np.isfinite(value) for value in column if isinstance(value, float))
    scores = [model.score_samples(rows)] if hasattr(model, "score_samples") else []
    return [*model.class_probabilities(rows).values(), *scores]


@pytest.mark.slow
@pytest.mark.parametrize("place", range(len(ROWS)), ids=[str(row) for row in ROWS])
def test_a_forged_model_is_refused_or_gives_finite_answers_or_a_clear_error(tmp_path, place):
    row, path = ROWS[place], tmp_path / "model"
    fitted(row).save(path)
    rows, content, refused = rows_to_ask(row), path.read_bytes(), 0
    for forged, what in forgeries(content, place, N_NUMBERS, N_ELEMENTS):
        path.write_bytes(forged)
        try:
            model = halfseen.load(path)
        except ModelFileError as error:
            refused += 1
            assert "\n" not in str(error), what  # noqa: PT017
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                answers = arrays_of_answers(row, model, rows)
        except ValueError as error:
            assert str(error), what  # noqa: PT017
            continue
        for answer in answers:
            assert answer.dtype.kind != "f" or not np.isnan(answer).any(), what
    assert refused > 0


def ratings():
    """Ratings of three items by two users; identifiers are whole numbers."""
    return pd.DataFrame(
        {"user": [1, 1, 1, 2, 2], "item": [1, 2, 3, 1, 2], "rating": [1.0, 2.0, 3.0, 2.0, 5.0]}
    )


@pytest.fixture(scope="module")
def contents(tmp_path_factory):
    """The content of a small saved model, by the name of its class."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3)) + rng.normal(size=(120, 1))
    X[:, 2] = np.round(np.exp(X[:, 2]).clip(max=9))  # a count, with knots in its margin
    X[rng.random(X.shape) < 0.2] = np.nan
    y = rng.normal(size=120)
    path = tmp_path_factory.mktemp("models") / "model"
    latent = {"n_latent": 2, "width": 8, "n_blocks": 1, "max_epochs": 1, "n_imputation_draws": 32}
    models = [
        GaussianImputer(n_posterior_draws=2, random_state=0).fit(X),
        MeanImputer(random_state=0).fit(X),
        MIWAEImputer(random_state=0, **latent).fit(X),
        GaussianRegressor(random_state=0).fit(X, y),
        BoostingRegressor(max_iter=3, random_state=0).fit(X, y),
        ImputeThenRegressor(predictor="linear", n_draws=2, random_state=0).fit(X, y),
        NeuMissNetworkClassifier(depth=1, width=4, max_epochs=1, random_state=0).fit(X, y > 0),
        NeuMissNetworkRegressor(depth=1, width=4, max_epochs=1, random_state=0).fit(X, y),
        NeuMissRegressor(n_networks=1, width=4, max_epochs=1, random_state=0).fit(X, y),
        NeuMissClassifier(n_networks=1, width=4, max_epochs=1, random_state=0).fit(X, y > 0),
        SparsityNormClassifier(width=4, max_epochs=1, random_state=0).fit(X, y > 0),
        CircuitClassifier(n_leaves=2, n_channels=2, max_epochs=1, random_state=0).fit(X, y > 0),
        MatrixFactorization(n_factors=1, n_warmup=1, n_draws=2, random_state=0).fit(ratings()),
    ]
    found = {}
    for model in models:
        model.save(path)
        found[type(model).__name__] = path.read_bytes()
    return found


@pytest.mark.parametrize(
    ("name", "part", "entry", "value", "match"),
    [
        ("GaussianImputer", "attributes", "seed_", -1, "seed_ is -1"),
        ("GaussianImputer", "attributes", "seed_", None, "seed_ is None"),
        ("GaussianImputer", "attributes", "n_iter_", None, "n_iter_ is None"),
        ("GaussianImputer", "parameters", "max_iter", {}, r"the parameter max_iter is \{\}"),
        ("MeanImputer", "parameters", "add_indicator", float("nan"), "the parameter add_indicator is nan"),
        (
            "MIWAEImputer",
            "parameters",
            "n_imputation_draws",
            10**7,
            "n_imputation_draws must be at most 100",
        ),
        ("MIWAEImputer", "attributes", "interval_inflation_", [1.0, "2", 1.0], "interval_inflation_ is"),
        ("MIWAEImputer", "attributes", "interval_inflation_", [1.0], "1 factors of intervals for 3"),
        ("BoostingRegressor", "attributes", "_n_errors", 0, "_n_errors is 0"),
        ("CircuitClassifier", "attributes", "_plain_classes", {}, "_plain_classes is"),
        (
            "CircuitClassifier",
            "attributes",
            "_plain_classes",
            {"labels": [["no"]], "dtype": "<U2"},
            "_plain_classes is",
        ),
        *(
            (
                "CircuitClassifier",
                "attributes",
                "_plain_classes",
                TWO | {"weights": weights},
                "_plain_classes is",
            )
            for weights in ([1.0], [1.0, 0.0], [1.0, "2"], 1.0)
        ),
        ("ImputeThenRegressor", "attributes", "_n_draws", 10**7, "KeyError|has no model"),
        ("NeuMissNetworkClassifier", "attributes", "_n_outputs", 10**9, "1000000000 outputs for 2 classes"),
        ("NeuMissNetworkClassifier", "attributes", "_plain_classes", THREE, "2 outputs for 3 classes"),
        ("NeuMissClassifier", "attributes", "_plain_classes", THREE, "2 outputs for 3 classes"),
        ("SparsityNormClassifier", "attributes", "_plain_classes", THREE, "2 outputs for 3 classes"),
        ("CircuitClassifier", "attributes", "_plain_classes", THREE, "2 outputs for 3 classes"),
        *(
            (
                "MatrixFactorization",
                "attributes",
                "_identifiers",
                identifiers,
                "identifiers of",
            )
            for identifiers in (
                {"user": [1, 2], "item": [2, 1, 3]},  # not sorted
                {"user": [1, 2], "item": [1, 2, "a"]},
                {"user": [1, 2], "item": [1, 2, 2.5]},
                {"user": [False, True], "item": [1, 2, 3]},
                {"user": [1, 2], "item": [1, 2, 2**70]},
                {"user": [1, 2], "item": [1, 2, 3], "shop": [1]},
            )
        ),
    ],
)
def test_numbers_that_no_fit_gives_are_refused(contents, tmp_path, name, part, entry, value, match):
    manifest, tensors = read(contents[name])
    assert entry in manifest[part]
    manifest[part][entry] = value
    _refused(tmp_path / "model", sign(manifest, tensors), match)


@pytest.mark.parametrize(
    ("name", "tensor", "change", "match"),
    [
        ("GaussianImputer", "joint.covariance", lambda t: -t, "covariance is not positive definite"),
        ("GaussianImputer", "posterior.covariance", lambda t: 0 * t, "covariance is not positive definite"),
        ("GaussianImputer", "features.scale", lambda t: 0 * t, "scales of features or targets are not"),
        ("GaussianImputer", "features.loc", lambda t: t.bool(), "scales of features or targets are not"),
        ("GaussianImputer", "features.margin.2.settings", lambda t: 0 * t, "margin"),
        ("GaussianImputer", "features.margin.2.knots", lambda t: -t, "A margin does not increase"),
        ("GaussianImputer", "features.margin.2.knots", lambda t: t.long(), "knots of a margin have the type"),
        ("MeanImputer", "joint.noise", lambda t: -t, "noise of a Gaussian is not positive"),
        ("MIWAEImputer", "preimputer.covariance", lambda t: t - 5, "covariance is not positive definite"),
        ("BoostingRegressor", "errors", lambda t: t.bool(), "errors of held-out rows have the type"),
        ("GaussianRegressor", "target.scale", lambda t: -t, "scales of features or targets are not"),
        ("GaussianRegressor", "gaussian.covariance", lambda t: t[:2], "do not fit together"),
        ("NeuMissRegressor", "incomplete", lambda t: t.long(), "incomplete features"),
        ("NeuMissRegressor", "incomplete", lambda t: t[:-1], "incomplete features"),
        ("NeuMissRegressor", "incomplete", lambda t: ~t, "inputs of networks|incomplete features"),
        ("NeuMissRegressor", "bounds", lambda t: t.flip(0), "bounds of features"),
        ("NeuMissRegressor", "bounds", lambda t: t[:, :1], "bounds of features"),
        (
            "NeuMissRegressor",
            "target.loc",
            lambda t: t.expand(2).clone(),
            "scales of features or targets|outputs",
        ),
        ("NeuMissClassifier", "calibration", lambda t: 0 * t, "calibration"),
        ("NeuMissClassifier", "scores.knots", lambda t: t[:, :1], "inputs of networks"),
        ("NeuMissClassifier", "link.weights", lambda t: t[:, [0, 0, 0]], "do not fit together"),
        (
            "NeuMissNetworkRegressor",
            "target.loc",
            lambda t: t.expand(2).clone(),
            "scales of features|outputs",
        ),
        ("NeuMissNetworkRegressor", "target.errors", lambda t: t[:, [0, 0]], "errors of held-out rows"),
        ("SparsityNormClassifier", "calibration.offsets", lambda t: t.long(), "offsets of classes"),
        ("SparsityNormClassifier", "calibration.offsets", lambda t: t[:, None], "offsets of classes"),
        ("SparsityNormClassifier", "calibration.offsets", lambda t: t[:1], "offsets of classes"),
        ("SparsityNormClassifier", "calibration.factor", lambda t: t.expand(2).clone(), "factor"),
        ("SparsityNormClassifier", "calibration.factor", lambda t: -t, "factor"),
        ("SparsityNormClassifier", "class_weights", lambda t: -t, "weights of classes"),
        ("SparsityNormClassifier", "class_weights", lambda t: t[:, None], "weights of classes"),
    ],
)
def test_tensors_that_no_fit_gives_are_refused(contents, tmp_path, name, tensor, change, match):
    manifest, tensors = read(contents[name])
    tensors[tensor] = change(tensors[tensor])
    _refused(tmp_path / "model", sign(manifest, tensors), match)


@pytest.mark.parametrize(
    ("name", "question"),
    [
        ("MIWAEImputer", "transform"),
        ("MIWAEImputer", "score_samples"),
        ("NeuMissNetworkClassifier", "predict"),
        ("NeuMissNetworkClassifier", "predict_proba"),
    ],
)
def test_weights_beyond_all_measure_give_an_error_instead_of_nan(contents, tmp_path, name, question):
    manifest, tensors = read(contents[name])
    for key, value in tensors.items():
        if key.startswith("module.") and key.endswith("weight"):
            tensors[key] = torch.full_like(value, 1e300 if value.dtype == torch.float64 else 1e38)
    (tmp_path / "model").write_bytes(sign(manifest, tensors))
    model = halfseen.load(tmp_path / "model")
    with pytest.raises(ValueError, match=r"not finite|has no values|cannot compute an answer"):
        getattr(model, question)([[1.0, np.nan, 2.0], [0.5, 1.0, np.nan]])


@pytest.mark.parametrize(
    ("key", "value", "match"),
    [
        ("censored_below", "low", "has the censored_below 'low'"),
        ("minimum", True, "has the minimum True"),
        ("maximum", -1e9, "has the minimum .* and the maximum -1000000000.0"),
        ("step", 0, "has the step 0"),
        ("n_missing", -1, "a negative number of cells"),
        ("n_observed", 1.5, "has the n_observed 1.5"),
        ("integer", None, "has the integer None"),
        ("firm", "yes", "has the firm 'yes'"),
        ("kind", "binary", "is binary and has no levels"),
        ("levels", ["a", "b"], "is continuous and has levels"),
    ],
)
def test_columns_with_limits_and_counts_that_cannot_be_are_refused(contents, tmp_path, key, value, match):
    manifest, tensors = read(contents["MeanImputer"])
    manifest["schema"]["columns"][0] |= {"minimum": 0.0, key: value}
    _refused(tmp_path / "model", sign(manifest, tensors), match)


def test_texts_are_no_levels_of_numbers(tmp_path):
    MeanImputer().fit(np.array([[0.0], [1.0], [1.0], [np.nan]])).save(tmp_path / "model")
    manifest, tensors = read((tmp_path / "model").read_bytes())
    assert manifest["schema"]["columns"][0]["levels"] == [0.0, 1.0]
    manifest["schema"]["columns"][0]["levels"] = ["no", "yes"]
    _refused(tmp_path / "model", sign(manifest, tensors), r"of number has the levels \('no', 'yes'\)")


@pytest.mark.parametrize(
    ("names", "match"), [([["a"]], "feature_names_in_ is"), (["a", "b"], "2 names of 1")]
)
def test_names_of_columns_are_texts_and_as_many_as_columns(tmp_path, names, match):
    MeanImputer().fit(pd.DataFrame({"a": [0.5, 1.0, 1.7, None]})).save(tmp_path / "model")
    manifest, tensors = read((tmp_path / "model").read_bytes())
    assert manifest["attributes"]["feature_names_in_"] == ["a"]
    manifest["attributes"]["feature_names_in_"] = names
    _refused(tmp_path / "model", sign(manifest, tensors), match)


@pytest.mark.parametrize("items", [["2", "1", "3"], ["1", "1", "2"], [1, 2, 3], "123"])
def test_the_skeleton_of_ratings_refuses_items_that_no_fit_gives(tmp_path, items):
    RatingMeans().fit(ratings()).save(tmp_path / "model")
    manifest, tensors = read((tmp_path / "model").read_bytes())
    assert manifest["attributes"]["items_"] == ["1", "2", "3"]
    manifest["attributes"]["items_"] = items
    _refused(tmp_path / "model", sign(manifest, tensors), "items are not different texts in order")


def test_a_latent_model_needs_the_gaussian_that_fills_its_input(contents, tmp_path):
    manifest, tensors = read(contents["MIWAEImputer"])
    del tensors["preimputer.loc"]
    _refused(tmp_path / "model", sign(manifest, tensors), "no Gaussian that fills the input")


def _refused(path, content, match):
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match=match):
        halfseen.load(path)
