"""What is particular to each imputer: its parameters, and what it learns; for laws see tests/conformance."""

import numpy as np
import pandas as pd
import pytest
import torch
from conformance.tables import ARRAY, PENGUINS
from scipy import integrate, stats
from tolerances import EXACT, FAILURE_RATE, QUADRATURE

import halfseen
from halfseen import GaussianImputer, MeanImputer, MixtureImputer
from halfseen.data.incomplete import Incomplete
from halfseen.gaussian.distribution import Gaussian
from halfseen.gaussian.mask_factors import ProbitMaskFactor
from halfseen.gaussian.self_masked import SelfMaskedGaussian
from halfseen.testing.tables import gaussian_array
from halfseen.training.loop import SMALLEST_SPLIT, split_rows
from halfseen.training.progress import History, Progress
from papers.problems.gaussian import GaussianProblem


def two_clusters(n_rows=400, seed=0):
    """Two clusters, distinguished by the first number and by the last."""
    rng = np.random.default_rng(seed)
    side = rng.choice([-1.0, 1.0], size=n_rows)
    table = np.column_stack([5 * side, np.full(n_rows, 2.0), 9 * side])
    return table + 0.3 * rng.normal(size=table.shape)


@pytest.mark.parametrize(
    ("imputer", "message"),
    [
        (GaussianImputer(ridge=-0.5), "ridge must be 'auto' or a number of at least 0, got -0.5"),
        (GaussianImputer(ridge=float("nan")), "ridge must be 'auto' or a number of at least 0, got nan"),
        (GaussianImputer(ridge="big"), "ridge must be 'auto' or a number of at least 0, got 'big'"),
        (GaussianImputer(ridge=None), "ridge must be 'auto' or a number of at least 0, got None"),
        (GaussianImputer(max_iter=0), "max_iter must be at least 1, got 0"),
        (GaussianImputer(max_iter=None), "max_iter must be a whole number of at least 1, got None"),
        (GaussianImputer(tol="small"), "tol must be a number of at least 0, got 'small'"),
        (GaussianImputer(n_posterior_draws=-1), "n_posterior_draws must be at least 0, got -1"),
        (
            GaussianImputer(n_posterior_draws=2, missingness="self-masking-probit"),
            "missingness='mar' only, got n_posterior_draws=2 with missingness='self-masking-probit'",
        ),
        (
            GaussianImputer(missingness="mnar"),
            "missingness must be one of 'mar', 'self-masking-probit', 'self-masking-gaussian', got 'mnar'",
        ),
        (MixtureImputer(0), "n_components must be at least 1, got 0"),
        (MixtureImputer(validation_fraction=1.0), r"validation_fraction must be in \[0, 1\), got 1.0"),
        (MixtureImputer(validation_fraction=-0.1), r"validation_fraction must be in \[0, 1\), got -0.1"),
        (MixtureImputer(max_epochs=-1), "max_epochs must be .*got -1"),
        (MixtureImputer(max_epochs=None), "max_epochs must be a whole number of at least 0, got None"),
        (MixtureImputer(2.5), "n_components must be a whole number of at least 1, got 2.5"),
        (MixtureImputer(batch_size=0), "batch_size must be .*got 0"),
        (MixtureImputer(learning_rate=0.0), "learning_rate must be .*got 0.0"),
        (MixtureImputer(patience=-1), "patience must be .*got -1"),
        (
            MeanImputer(random_state="x"),
            "random_state must be None, an integer or .*, got 'x'",
        ),
        (MeanImputer(schema={"x9": "count"}), "The schema refers to column 'x9', which is not in the table"),
        (MeanImputer(schema={"x0": "colour"}), "Column 'x0': unknown kind 'colour'; known are continuous"),
        (
            MeanImputer(schema={"x0": {"min": 3}}),
            "Column 'x0': unknown setting 'min'; known are kind",
        ),
        (MeanImputer(schema={0: {"minimum": 3, "maximum": 1}}), "Column 'x0': minimum 3 is above maximum 1"),
    ],
    ids=str,
)
def test_parameters_out_of_range_are_refused_when_fitting(imputer, message):
    with pytest.raises(ValueError, match=message):
        imputer.fit(ARRAY.make())


@pytest.mark.parametrize("n_draws", [1.5, True, None, "2"])
def test_a_number_of_draws_that_is_no_whole_number_is_refused(n_draws):
    imputer = MeanImputer().fit(ARRAY.make())
    with pytest.raises(ValueError, match=f"n_draws must be a whole number of at least 1, got {n_draws!r}"):
        imputer.sample(ARRAY.make(), n_draws)
    assert len(imputer.sample(ARRAY.make(), np.int64(2))) == 2


NOTHING = [None, np.nan, pd.NA, pd.NaT, np.datetime64("NaT"), np.timedelta64("NaT")]


@pytest.mark.parametrize("nothing", NOTHING, ids=["None", "nan", "NA", "NaT", "time", "span"])
@pytest.mark.parametrize("make", [lambda rows: np.array(rows, dtype=object), list], ids=["array", "list"])
def test_objects_that_stand_for_nothing_are_missing_cells(nothing, make):
    imputer = GaussianImputer(random_state=0).fit(gaussian_array())
    expected = imputer.transform([[1.0, np.nan, 2.0, 3.0]])
    assert np.array_equal(imputer.transform(make([[1.0, nothing, 2.0, 3.0]])), expected)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("a", "'a'"),
        (pd.Timestamp(2020, 1, 2), r"Timestamp\('2020-01-02 00:00:00'\)"),
        (10**400, "1000"),
        (np.zeros(2), r"array\(\[0., 0.\]\)"),
    ],
)
def test_what_is_no_number_in_an_array_is_refused_with_its_place(value, shown):
    imputer = GaussianImputer(random_state=0).fit(gaussian_array())
    table = np.array([[1.0, None, 2.0, 3.0]] * 3, dtype=object)
    table[2, 1] = value
    with pytest.raises(ValueError, match=rf"Column 'x1' contains {shown}.* in row 2.*Pass a data frame"):
        imputer.transform(table)


def test_a_list_with_text_is_refused_with_its_place():
    with pytest.raises(ValueError, match=r"Column 'x1' contains 'a' in row 0, .*Pass a data frame"):
        MeanImputer().fit([[1.0, "a"], [2.0, "b"]])


def test_a_score_of_no_rows_is_refused():
    imputer = GaussianImputer(random_state=0).fit(ARRAY.make())
    assert imputer.score_samples(ARRAY.make()[:0]).shape == (0,)
    with pytest.raises(ValueError, match="at least one row, but it has none"):
        imputer.score(ARRAY.make()[:0])


def test_gaussian_equals_the_textbook_conditional_on_complete_training_data():
    table = np.random.default_rng(0).normal(size=(100, 3)) @ np.random.default_rng(1).normal(size=(3, 3)) + 2
    imputer = GaussianImputer(ridge=0.0, tol=1e-12).fit(table)
    mean, covariance = table.mean(axis=0), np.cov(table.T, bias=True)
    weights = np.linalg.solve(covariance[:2, :2], covariance[:2, 2])
    filled = imputer.transform([[0.5, 1.0, np.nan]])[0, 2]
    assert filled == pytest.approx(mean[2] + weights @ ([0.5, 1.0] - mean[:2]), rel=EXACT)
    low, high = (end[0, 2] for end in imputer.interval([[0.5, 1.0, np.nan]], level=0.9))
    variance = covariance[2, 2] - weights @ covariance[:2, 2]
    assert high - low == pytest.approx(2 * stats.norm.ppf(0.95) * np.sqrt(variance), rel=1e-9)
    density = stats.multivariate_normal(mean, covariance)
    np.testing.assert_allclose(imputer.score_samples(table), density.logpdf(table), rtol=1e-9)


def test_the_ridge_is_chosen_when_rows_are_few_and_kept_when_they_abound():
    assert GaussianImputer(random_state=0).fit(gaussian_array(2000)).ridge_ == 1.0
    assert GaussianImputer(ridge=2.5).fit(gaussian_array(50)).ridge_ == 2.5
    noise = np.random.default_rng(0).normal(size=(25, 12))
    strong = np.outer(np.random.default_rng(1).normal(size=40), np.ones(6)) + 0.05 * np.random.default_rng(
        2
    ).normal(size=(40, 6))
    of_noise = GaussianImputer(random_state=0).fit(noise).ridge_
    assert of_noise > GaussianImputer(random_state=0).fit(strong).ridge_


def test_the_chosen_ridge_predicts_noise_better_than_none():
    noise = np.random.default_rng(0).normal(size=(30, 12))
    fresh = np.random.default_rng(1).normal(size=(500, 12))
    auto, bare = GaussianImputer(random_state=0).fit(noise), GaussianImputer(ridge=0.01).fit(noise)
    assert auto.score(fresh) > bare.score(fresh)


def test_the_log_likelihood_of_em_never_falls():
    imputer = GaussianImputer(random_state=0).fit(gaussian_array(150, rate=0.4))
    assert imputer.n_iter_ == len(imputer.objective_) > 1
    assert (np.diff(imputer.objective_) >= 0).all()


def mean_width(imputer, table):
    low, high = imputer.interval(table)
    return np.mean((high - low)[np.isnan(table)])


def test_parameter_uncertainty_widens_intervals_where_rows_are_few():
    ratios = {}
    for n_rows in (15, 1000):
        table = gaussian_array(n_rows)
        certain = GaussianImputer(ridge=1.0, random_state=0).fit(table)
        uncertain = GaussianImputer(ridge=1.0, n_posterior_draws=50, random_state=0).fit(table)
        ratios[n_rows] = mean_width(uncertain, table) / mean_width(certain, table)
    assert ratios[15] > 1.1
    assert 0.98 < ratios[1000] < 1.05


def test_each_draw_has_parameters_of_its_own():
    table = gaussian_array(30)
    imputer = GaussianImputer(n_posterior_draws=3, random_state=0).fit(table)
    assert len(imputer.model_.posterior) == 3
    locs = [tuple(draw.gaussian.loc.tolist()) for draw in imputer.model_.posterior]
    assert len(set(locs)) == 3
    assert imputer.sample(table, n_draws=7).shape == (7, *table.shape)


def test_the_mean_imputer_fills_with_means_and_most_frequent_levels():
    penguins = PENGUINS.make()
    filled = MeanImputer().fit_transform(penguins)
    hole = penguins["body_mass_g"].isna()
    assert set(filled.loc[hole, "body_mass_g"]) == {round(penguins["body_mass_g"].mean())}
    assert set(filled.loc[penguins["sex"].isna(), "sex"]) == {penguins["sex"].mode()[0]}
    found = MeanImputer().fit(penguins).class_probabilities(penguins)["sex"][penguins["sex"].isna()]
    shares = penguins["sex"].value_counts(normalize=True)[["female", "male"]]
    np.testing.assert_allclose(found, np.tile(shares, (len(found), 1)), rtol=1e-9)


def test_the_mean_imputer_scores_columns_as_independent():
    table = gaussian_array(100)
    expected = np.zeros(len(table))
    for column in table.T:
        seen = ~np.isnan(column)
        expected[seen] += stats.norm.logpdf(column[seen], column[seen].mean(), column[seen].std())
    np.testing.assert_allclose(MeanImputer().fit(table).score_samples(table), expected, rtol=1e-9)


def test_a_mixture_sees_clusters_that_a_gaussian_does_not():
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 2 * np.pi, 600)
    ring = np.column_stack([np.cos(angle), np.sin(angle)]) + 0.1 * rng.normal(size=(600, 2))
    mixture = MixtureImputer(12, random_state=0).fit(ring)
    assert mixture.score(ring) > GaussianImputer(random_state=0).fit(ring).score(ring) + 0.3
    draws = mixture.sample(np.tile([0.0, np.nan], (300, 1)))[0][:, 1]
    assert 0.25 < (draws > 0).mean() < 0.75
    assert (np.abs(draws) > 0.5).mean() > 0.8


UNTRAINED = pytest.mark.filterwarnings("ignore:Columns 'x0' and 'x2' are nearly copies")
"""After a few epochs, components are wider than the clusters."""


def test_a_mixture_fills_by_cluster():
    table = two_clusters()
    holes = table[:40].copy()
    holes[:, 2] = np.nan
    filled = MixtureImputer(2, random_state=0).fit(table).transform(holes)
    np.testing.assert_allclose(filled[:, 2], np.sign(table[:40, 0]) * 9, atol=0.5)


@UNTRAINED
def test_a_mixture_keeps_its_history_and_calls_a_callback():
    told = []
    imputer = MixtureImputer(2, max_epochs=7, random_state=0, callback=told.append).fit(two_clusters())
    assert isinstance(imputer.history_, History)
    assert all(isinstance(progress, Progress) for progress in told)
    assert [progress.epoch for progress in told] == list(range(1, len(imputer.history_.train_loss) + 1))
    assert {progress.max_epochs for progress in told} == {7}
    assert len(imputer.history_.validation_loss) == len(imputer.history_.train_loss) <= 7
    assert imputer.history_.train_loss[-1] < imputer.history_.train_loss[0]


@pytest.mark.parametrize("missingness", ["mar", "self-masking-probit"])
def test_a_gaussian_calls_a_callback_at_each_iteration_and_is_the_same(missingness):
    told = []
    settings = {"missingness": missingness, "random_state": 0, "max_iter": 9}
    imputer = GaussianImputer(callback=told.append, **settings).fit(two_clusters())
    assert [one.epoch for one in told[-imputer.n_iter_ :]] == list(range(1, imputer.n_iter_ + 1))
    assert {one.max_epochs for one in told} == {9}
    assert told[-1].objective == pytest.approx(imputer.objective_[-1])
    silent = GaussianImputer(**settings).fit(two_clusters())
    assert np.array_equal(silent.transform(two_clusters()), imputer.transform(two_clusters()))


@UNTRAINED
def test_a_callback_changes_nothing():
    one = MixtureImputer(2, max_epochs=5, random_state=0).fit(two_clusters())
    other = MixtureImputer(2, max_epochs=5, random_state=0, callback=lambda _: None).fit(two_clusters())
    assert one.history_ == other.history_


def test_training_stops_when_patience_ends():
    imputer = MixtureImputer(2, patience=2, max_epochs=500, random_state=0).fit(two_clusters(120))
    assert imputer.history_.stopped == "patience"
    assert len(imputer.history_.train_loss) < 500


@UNTRAINED
def test_short_tables_hold_no_rows_out_and_use_few_components():
    short = MixtureImputer(20, max_epochs=3, random_state=0).fit(two_clusters(SMALLEST_SPLIT - 1))
    assert short.history_.validation_loss == ()
    assert short.model_.module.n_components == 20
    tiny = MixtureImputer(20, max_epochs=3, random_state=0).fit(two_clusters(6))
    assert tiny.model_.module.n_components == 3
    none = MixtureImputer(2, max_epochs=3, validation_fraction=0.0, random_state=0).fit(two_clusters())
    assert none.history_.validation_loss == ()


def test_rows_are_split_into_disjoint_parts_of_the_size_asked_for(generator):
    batch = Incomplete.from_array(np.arange(100.0)[:, None])
    train, held_out = split_rows(batch, 0.25, generator)
    assert (len(train), len(held_out)) == (75, 25)
    assert sorted([*train.x.flatten().tolist(), *held_out.x.flatten().tolist()]) == list(range(100))
    assert split_rows(batch, 0.0, generator)[1] is None
    assert split_rows(batch[:49], 0.5, generator)[1] is None


@pytest.mark.parametrize("make", [GaussianImputer, MixtureImputer])
def test_intervals_cover_held_out_cells_of_gaussian_data(make):
    rng = np.random.default_rng(0)
    root = rng.normal(size=(4, 4))
    train, test = rng.normal(size=(1500, 4)) @ root, rng.normal(size=(800, 4)) @ root
    train[rng.random(train.shape) < 0.2] = np.nan
    holes = rng.integers(4, size=len(test))
    hidden = test.copy()
    hidden[np.arange(len(test)), holes] = np.nan
    low, high = make(random_state=0).fit(train).interval(hidden, level=0.9)
    inside = int(((low <= test) & (test <= high))[np.arange(len(test)), holes].sum())
    slack = 0.0 if make is GaussianImputer else 0.03  # a mixture of few diagonals only approximates
    assert stats.binomtest(inside, len(test), 0.9 - slack, alternative="less").pvalue > FAILURE_RATE
    assert stats.binomtest(inside, len(test), 0.9 + slack, alternative="greater").pvalue > FAILURE_RATE


SELF_MASKING = ("self-masking-gaussian", "self-masking-probit")


def rmse(filled, truth, hidden):
    return np.sqrt(np.mean((filled - truth)[hidden] ** 2))


def self_masked_array(n_rows, n_columns, seed=0):
    """Correlated normals of which large values hide."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n_rows, n_columns)) + rng.normal(size=(n_rows, 1))
    return np.where(x > rng.normal(0.5, 1.5, size=x.shape), np.nan, 3 + 2 * x)


@pytest.mark.slow
@pytest.mark.parametrize("missingness", SELF_MASKING)
def test_a_model_of_the_mask_fills_self_masked_cells_nearly_as_well_as_the_true_distribution(missingness):
    problem = GaussianProblem.draw(5, missingness, random_state=0)
    sample = problem.sample(5000, random_state=0)
    table, hidden = sample.incomplete, ~sample.observed
    filled = GaussianImputer(missingness=missingness, random_state=0).fit_transform(table)
    plain = GaussianImputer(random_state=0).fit_transform(table)
    if missingness == "self-masking-gaussian":
        best = problem.impute_bayes(table)
    else:
        batch = Incomplete.from_array(table)
        joint = Gaussian(torch.from_numpy(problem.score.loc), torch.from_numpy(problem.score.covariance))
        slope, threshold = problem.mechanism.slopes_, problem.mechanism.thresholds_
        mask = ProbitMaskFactor(
            torch.ones(5, dtype=torch.bool), torch.from_numpy(np.column_stack([slope, -threshold]))
        )
        best = SelfMaskedGaussian(joint, mask).conditional_mean(batch).numpy()
    error, oracle = rmse(filled, sample.X, hidden), rmse(best, sample.X, hidden)
    assert error < 0.8 * rmse(plain, sample.X, hidden)
    assert error < 1.03 * oracle


@pytest.mark.parametrize("missingness", SELF_MASKING)
def test_probabilities_of_one_column_seen_and_missing_sum_to_one(missingness):
    table = self_masked_array(400, 1)
    imputer = GaussianImputer(missingness=missingness, random_state=0).fit(table)
    assert imputer.model_.gaussian.mask.active.all()
    grid = np.linspace(-40, 46, 8001)
    seen = integrate.trapezoid(np.exp(imputer.score_samples(grid[:, None])), grid)
    hidden = np.exp(imputer.score_samples([[np.nan]]))[0]
    assert 0.1 < hidden < 0.9
    assert seen + hidden == pytest.approx(1.0, abs=QUADRATURE)


@pytest.mark.parametrize(
    ("missingness", "tolerance"), [("self-masking-gaussian", QUADRATURE), ("self-masking-probit", 2e-3)]
)
def test_probabilities_of_two_columns_over_all_masks_sum_to_one(missingness, tolerance):
    """With a probit, the probability that both are hidden is approximate."""
    imputer = GaussianImputer(missingness=missingness, random_state=0).fit(self_masked_array(400, 2))
    grid = np.linspace(-25, 31, 301)
    step = grid[1] - grid[0]
    first, second = (part.ravel() for part in np.meshgrid(grid, grid))
    holes = np.full(len(grid), np.nan)
    total = np.exp(imputer.score_samples(np.column_stack([first, second]))).sum() * step**2
    total += np.exp(imputer.score_samples(np.column_stack([grid, holes]))).sum() * step
    total += np.exp(imputer.score_samples(np.column_stack([holes, grid]))).sum() * step
    total += np.exp(imputer.score_samples([[np.nan, np.nan]]))[0]
    assert total == pytest.approx(1.0, abs=tolerance)


@pytest.mark.parametrize("missingness", SELF_MASKING)
def test_a_model_of_the_mask_is_saved_and_loaded(missingness, tmp_path):
    table = self_masked_array(300, 3)
    imputer = GaussianImputer(missingness=missingness, random_state=0).fit(table)
    imputer.save(tmp_path / "model.halfseen")
    again = halfseen.load(tmp_path / "model.halfseen")
    assert type(again.model_.gaussian.mask) is type(imputer.model_.gaussian.mask)
    np.testing.assert_array_equal(again.transform(table), imputer.transform(table))
    np.testing.assert_array_equal(again.sample(table, n_draws=2), imputer.sample(table, n_draws=2))
    np.testing.assert_array_equal(again.score_samples(table), imputer.score_samples(table))
    for one, other in zip(again.interval(table), imputer.interval(table), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("missingness", SELF_MASKING)
def test_only_numbers_may_hide_themselves(missingness):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(self_masked_array(300, 2), columns=["a", "b"])
    frame["level"] = pd.Categorical(rng.choice(["low", "high"], 300), ["low", "high"], ordered=True)
    frame["colour"] = rng.choice(["red", "blue", "green"], 300)
    frame.loc[rng.random(300) < 0.3, ["level", "colour"]] = np.nan
    imputer = GaussianImputer(missingness=missingness, random_state=0, schema={"level": "ordinal"}).fit(frame)
    assert imputer.model_.gaussian.mask.active.tolist() == [True, True, False, False, False]
    assert not imputer.transform(frame).isna().any().any()
    assert np.isfinite(imputer.score_samples(frame)).all()


def test_draws_and_intervals_know_that_hidden_values_are_large():
    table = self_masked_array(1000, 2)
    hidden = np.isnan(table)
    plain, probit = (
        GaussianImputer(missingness=missingness, random_state=0).fit(table)
        for missingness in ("mar", "self-masking-probit")
    )
    for ask in (lambda i: i.sample(table)[0], lambda i: i.interval(table)[0], lambda i: i.interval(table)[1]):
        assert (ask(probit) - ask(plain))[hidden].mean() > 0.5


def test_the_mean_of_a_wide_table_needs_no_matrix_of_its_columns():
    array = np.random.default_rng(0).normal(size=(30, 200))
    array[:, 0][:5] = np.nan
    imputer = MeanImputer(random_state=0).fit(array)
    assert max(tensor.numel() for tensor in imputer._state().values()) <= 200
    np.testing.assert_allclose(imputer.transform(array)[:5, 0], np.nanmean(array[:, 0]))


def test_add_indicator_is_refused_for_images_and_unless_it_is_true_or_false():
    X = np.array([[0.0, 1.0, 0.5, 1.0], [1.0, np.nan, 0.0, 0.2]])
    with pytest.raises(ValueError, match="add_indicator must be True or False, got 'yes'"):
        halfseen.MeanImputer(add_indicator="yes").fit(X)
    with pytest.raises(ValueError, match="Images have no columns for missing-indicators"):
        halfseen.MIWAEImputer(image_shape=(2, 2), add_indicator=True).fit(X)


@pytest.mark.filterwarnings("ignore::halfseen.HalfseenWarning")
@pytest.mark.parametrize(
    "imputer", [GaussianImputer, MeanImputer, halfseen.TreeImputer, halfseen.AutoImputer]
)
def test_a_declared_column_with_a_single_level_may_be_alone(imputer):
    frame = pd.DataFrame({"a": ["x", None, "x"]})
    fitted = imputer(schema={"a": {"kind": "categorical", "fill": True}}, random_state=0).fit(frame)
    for answer in (fitted.transform(frame), *fitted.sample(frame, n_draws=2), *fitted.interval(frame)):
        assert answer["a"].tolist() == ["x", "x", "x"]


def test_ids_of_rows_must_be_as_many_as_rows():
    imputer = GaussianImputer(random_state=0).fit(np.arange(12.0).reshape(6, 2) ** 1.1)
    with pytest.raises(ValueError, match="row_ids must have one id for each row: got 2 ids for 1 rows"):
        imputer.sample(np.array([[1.0, np.nan]]), row_ids=[1, 2])
    with pytest.warns(halfseen.HalfseenWarning, match="'p7' in row_ids is the id of 2 rows: rows with equal"):
        imputer.sample(np.array([[1.0, np.nan]] * 3), row_ids=pd.Series(["p6", "p7", "p7"]))


def test_equal_rows_in_a_hundred_parts_with_ids_have_the_standard_error_of_one_table():
    imputer = GaussianImputer(random_state=0).fit(ARRAY.make())
    rows, ids = np.full((1000, 4), np.nan), np.arange(1000)
    whole = imputer.sample(rows, n_draws=20, row_ids=ids)
    parts = [imputer.sample(rows[:10], n_draws=20, row_ids=ids[k : k + 10]) for k in range(0, 1000, 10)]
    np.testing.assert_allclose(np.concatenate(parts, axis=1), whole, rtol=1e-12)
    assert len(np.unique(whole[0, :, 0])) == 1000
    means = whole[:, :, 0].mean(axis=1)
    ratio = means.var(ddof=1) / (whole[:, :, 0].var() / 1000)
    assert stats.chi2(19).sf(19 * ratio) > FAILURE_RATE


def test_values_that_are_missing_because_of_their_size_lie_beyond_observed_ones_that_repeat():
    """Breaking ties changes nothing but the rule of the range, which stops at the largest repeated value."""
    rng = np.random.default_rng(0)
    first = np.round(rng.normal(size=300) * 4) / 4
    table = np.column_stack([np.where(first > 0, np.nan, first), first + 0.3 * rng.normal(size=300)])
    apart = table + 1e-7 * rng.normal(size=table.shape)
    hidden = np.isnan(table[:, 0])

    def imputed(X, **settings):
        return GaussianImputer(random_state=0, **settings).fit(X).transform(X)[hidden, 0]

    found = imputed(table, missingness="self-masking-probit")
    np.testing.assert_allclose(found, imputed(apart, missingness="self-masking-probit"), atol=1e-4)
    assert (found > 0.0).mean() > 0.9
    assert imputed(table).max() <= 0.0
