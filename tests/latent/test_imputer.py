"""Imputers by latent-variable models: what is particular to them, beside the laws of all imputers."""

import functools
import math
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

import halfseen
from halfseen import GaussianImputer, HalfseenWarning, LatentImputer, MIWAEImputer, NotMIWAEImputer
from halfseen.data.incomplete import Incomplete
from halfseen.latent import (
    DeMissVAEImputer,
    MissIWAEImputer,
    MissSIWAEImputer,
    MissSVAEImputer,
    MissVAEImputer,
    MVAEImputer,
)
from halfseen.latent import imputer as latent_weights
from halfseen.latent import training as latent_training
from halfseen.latent.architecture import OFFERED
from halfseen.latent.imputer import check_importance_weights
from halfseen.missingness import LogisticSelfMasking

SMALL = {"n_latent": 1, "width": 8, "n_blocks": 1, "max_epochs": 3, "n_imputation_draws": 64}
PRESETS = [
    MVAEImputer,
    MIWAEImputer,
    NotMIWAEImputer,
    MissVAEImputer,
    MissSVAEImputer,
    MissIWAEImputer,
    MissSIWAEImputer,
]


def line(n_rows=120, seed=0):
    """Rows near a line, with cells missing completely at random."""
    rng = np.random.default_rng(seed)
    first = rng.normal(size=n_rows)
    table = np.column_stack([first, 2 * first + 0.1 * rng.normal(size=n_rows), -first])
    table[rng.random(table.shape) < 0.2] = np.nan
    return table


def mixed(n_rows=120, seed=0):
    """A number, a level that follows it, and an ordered level."""
    rng = np.random.default_rng(seed)
    number = rng.normal(size=n_rows)
    frame = pd.DataFrame(
        {
            "number": number,
            "level": np.where(number > 0, "high", "low"),
            "rank": pd.Categorical(
                np.array(["a", "b", "c"])[np.digitize(number, [-0.5, 0.5])], ["a", "b", "c"], ordered=True
            ),
        }
    )
    return frame.mask(rng.random(frame.shape) < 0.2)


def hidden_above_the_mean(n_rows=500, seed=0):
    """A correlated pair, of which the first is missing above its mean."""
    rng = np.random.default_rng(seed)
    complete = rng.multivariate_normal([0.0, 0.0], [[1.0, 0.8], [0.8, 1.0]], size=n_rows)
    table = complete.copy()
    table[complete[:, 0] > complete[:, 0].mean(), 0] = np.nan
    return table, complete


@functools.cache
def fitted_to_line(make):
    """A preset, fitted to `line()` once for all tests that only ask it something."""
    return make(random_state=0, **SMALL).fit(line())


@pytest.mark.parametrize("make", PRESETS)
def test_a_preset_is_the_latent_imputer_with_its_choices(make):
    table, preset = line(), fitted_to_line(make)
    choices = {
        name: getattr(preset, name)
        for name in (
            *("posterior", "sampling", "bound", "gradient", "missingness", "numeric", "n_components"),
            "learning_rate",
        )
    }
    general = LatentImputer(**choices, random_state=0, **SMALL).fit(table)
    np.testing.assert_array_equal(preset.transform(table), general.transform(table))


def test_presets_differ():
    table = line()
    answers = {make: fitted_to_line(make).transform(table).tobytes() for make in PRESETS}
    assert len(set(answers.values())) == len(PRESETS)


def test_a_loaded_imputer_keeps_the_architecture_it_was_fitted_with(tmp_path):
    table = line()
    imputer = MIWAEImputer(random_state=0, **SMALL).fit(table)
    expected = imputer.transform(table)
    imputer.set_params(width=3, n_latent=2).save(tmp_path / "model")
    loaded = halfseen.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.transform(table), expected)
    assert loaded.weight_diagnostics_ == imputer.weight_diagnostics_


@pytest.mark.parametrize("make", [MIWAEImputer, MissSVAEImputer])
def test_the_line_is_found(make):
    imputer = make(random_state=0, n_latent=1, width=8, max_epochs=10).fit(line())
    filled = imputer.transform([[1.2, np.nan, np.nan], [np.nan, -2.0, np.nan]])
    np.testing.assert_allclose(filled, [[1.2, 2.4, -1.2], [-1.0, -2.0, 1.0]], atol=0.15)
    low, high = imputer.interval([[1.2, np.nan, np.nan]])
    assert low[0, 1] < 2.4 < high[0, 1]


@pytest.mark.slow
@pytest.mark.parametrize("encoder", ["zero", "learned", "set"])
def test_every_encoder_learns_the_line_and_is_saved(encoder, tmp_path):
    table = line(300)
    imputer = LatentImputer(encoder=encoder, n_latent=1, width=16, max_epochs=40, random_state=0).fit(table)
    filled = imputer.transform([[1.2, np.nan, np.nan], [np.nan, -2.0, np.nan]])
    np.testing.assert_allclose(filled, [[1.2, 2.4, -1.2], [-1.0, -2.0, 1.0]], atol=0.2)
    imputer.save(tmp_path / "model.halfseen")
    assert np.array_equal(
        halfseen.load(tmp_path / "model.halfseen").transform(table), imputer.transform(table)
    )


@pytest.mark.slow
def test_before_training_the_score_is_that_of_a_gaussian():
    """Of three columns and two factors, so that factors lose nothing."""
    rng = np.random.default_rng(0)
    table = rng.normal(size=(150, 2)) @ rng.normal(size=(2, 3)) + 0.5 * rng.normal(size=(150, 3))
    table[rng.random(table.shape) < 0.2] = np.nan
    settings = {"numeric": "gaussian", "max_epochs": 0, "n_latent": 2, "n_imputation_draws": 2048}
    imputer = MIWAEImputer(random_state=0, **settings).fit(table)
    expected = GaussianImputer(ridge=1.0, margins="gaussian").fit(table)
    assert imputer.score(table) == pytest.approx(expected.score(table), abs=0.03)
    # Means use a fifth of the draws at least: four standard errors of cells with a deviation of 1.2.
    np.testing.assert_allclose(imputer.transform(table), expected.transform(table), atol=0.24)


@pytest.mark.slow
def test_cells_that_hide_above_the_mean_are_filled_near_what_they_were():
    """The error is 0.46 with the true joint distribution, and 0.60 if the mechanism is ignored."""
    errors = []
    for seed in range(3):
        table, complete = hidden_above_the_mean(seed=seed)
        imputer = NotMIWAEImputer(random_state=seed, width=16, n_blocks=1, max_epochs=5).fit(table)
        holes = np.isnan(table)
        errors.append(np.sqrt(((imputer.transform(table) - complete)[holes] ** 2).mean()))
    assert np.mean(errors) < 0.55


@pytest.mark.parametrize(
    "missingness",
    [
        "self-masking-shared-slope",
        *(
            pytest.param(word, marks=pytest.mark.slow)
            for word in ("self-masking-monotone", "self-masking-flexible", "linear", "nonlinear")
        ),
    ],
)
@pytest.mark.parametrize(
    "table",
    [pytest.param(line(60), id="numbers"), pytest.param(mixed(), id="mixed", marks=pytest.mark.slow)],
)
def test_every_model_of_missingness_fills_every_cell(missingness, table):
    imputer = LatentImputer(missingness=missingness, random_state=0, **SMALL).fit(table)
    for answer in (imputer.transform(table), imputer.sample(table)[0], *imputer.interval(table)):
        assert not pd.isna(pd.DataFrame(answer)).any().any()
    assert np.isfinite(imputer.score_samples(table)).all()


def ring(n_rows=400, seed=0):
    """Points around a circle, whose first coordinate is missing at the top: no model of it is right."""
    rng = np.random.default_rng(seed)
    angle, radius = rng.uniform(-np.pi, np.pi, n_rows), rng.normal(4.5, 0.5**0.5, n_rows)
    table = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
    table[table[:, 1] > np.abs(table[:, 0]), 0] = np.nan
    return table


@pytest.mark.slow
@pytest.mark.parametrize("missingness", [word for word in OFFERED if word != "mar"])
@pytest.mark.parametrize("numeric", ["gaussian", "student-t"])
def test_no_model_of_missingness_moves_values_far_away_from_what_was_observed(missingness, numeric):
    """Up to half of the observed range away, with the default numbers of epochs, and without a warning."""
    table = ring()
    imputer = LatentImputer(missingness=missingness, numeric=numeric, learning_rate=3e-3, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", HalfseenWarning)
        filled = imputer.fit(table).transform(table)
    low, high = np.nanmin(table[:, 0]), np.nanmax(table[:, 0])
    assert low - 0.5 * (high - low) < filled[:, 0].min()
    assert filled[:, 0].max() < high + 0.5 * (high - low)


@pytest.mark.slow
@pytest.mark.parametrize("make", PRESETS)
def test_no_preset_moves_values_far_away_from_what_was_observed(make):
    table = ring(seed=1)
    filled = make(random_state=0).fit(table).transform(table)
    low, high = np.nanmin(table[:, 0]), np.nanmax(table[:, 0])
    assert low - 0.5 * (high - low) < filled[:, 0].min()
    assert filled[:, 0].max() < high + 0.5 * (high - low)


@pytest.mark.parametrize(("decoder", "kept"), [("residual", True), ("linear", False)])
@pytest.mark.parametrize("missingness", ["linear", "nonlinear"])
def test_a_mask_of_all_columns_leaves_the_distribution_of_values_unless_it_is_linear(
    monkeypatch, missingness, decoder, kept
):
    after = []  # the weights of the decoder, after each phase of training

    def fit_module(module, *args, **options):
        history = trained_once(module, *args, **options)
        after.append(torch.cat([weight.detach().flatten().clone() for weight in module.decoder.parameters()]))
        return history

    trained_once = latent_training.fit_module
    monkeypatch.setattr(latent_training, "fit_module", fit_module)
    LatentImputer(missingness=missingness, decoder=decoder, random_state=0, **SMALL).fit(ring(90))
    ignorant, with_mask = after
    assert torch.equal(ignorant, with_mask) == kept


@pytest.mark.parametrize("kind", ["lair", "pseudo-gibbs", "mwg"])
def test_imputations_of_training_follow_the_chosen_algorithm(monkeypatch, kind):
    objectives = []

    def fit_module(module, objective, *args, **options):
        objectives.append(objective)
        return trained_once(module, objective, *args, **options)

    trained_once = latent_training.fit_module
    monkeypatch.setattr(latent_training, "fit_module", fit_module)
    table = line()
    imputer = DeMissVAEImputer(imputation=kind, random_state=0, **SMALL).fit(table)
    assert objectives[0].imputer == kind
    assert np.isfinite(imputer.transform(table)).all()


def test_an_unknown_algorithm_of_imputations_is_refused():
    with pytest.raises(ValueError, match=r"imputation must be one of .*'mwg'\), got 'gibbs'"):
        DeMissVAEImputer(imputation="gibbs").fit(line())


@pytest.mark.slow
def test_a_known_mechanism_is_used_in_the_units_of_the_table():
    table, complete = hidden_above_the_mean()
    table, complete = 10 * table + 5, 10 * complete + 5
    centre = complete[:, 0].mean()

    def missing(x):
        return torch.stack([torch.sigmoid(4 * (x[..., 0] - centre)), torch.zeros_like(x[..., 0])], dim=-1)

    settings = {"random_state": 0, "numeric": "gaussian", **SMALL, "max_epochs": 30, "width": 16}
    knowing = LatentImputer(missingness=missing, **settings).fit(table)
    blind = LatentImputer(**settings).fit(table)
    holes = np.isnan(table)
    bias = [float((imputer.transform(table) - complete)[holes].mean()) for imputer in (knowing, blind)]
    assert bias[1] < bias[0] < 5.0
    assert bias[1] < -8.0
    with pytest.raises(ValueError, match="whose missingness is a user-defined function cannot be saved"):
        knowing.save("never")
    with pytest.raises(ValueError, match=r"A known mechanism \(missingness\) needs a table"):
        LatentImputer(missingness=missing, **settings).fit(mixed())


@pytest.mark.slow
def test_a_mechanism_of_the_laboratory_may_be_given():
    rng = np.random.default_rng(0)
    complete = rng.multivariate_normal([10, 20], [[4, 3], [3, 4]], size=400)
    mechanism = LogisticSelfMasking(rate=0.4, columns=[1]).fit(complete)
    table = mechanism.amputate(complete, random_state=1)
    settings = {"random_state": 0, "numeric": "gaussian", **SMALL, "max_epochs": 20, "width": 16}
    knowing = LatentImputer(missingness=mechanism, **settings).fit(table)
    blind = LatentImputer(**settings).fit(table)
    holes = np.isnan(table)
    bias = [float((imputer.transform(table) - complete)[holes].mean()) for imputer in (knowing, blind)]
    assert abs(bias[0]) < 0.4
    assert bias[1] < -1.0


def test_signs_may_be_one_for_all_a_list_or_by_name():
    table = pd.DataFrame(line(), columns=list("abc"))
    for signs, expected in (
        *((-1, [-1, -1, -1]), (np.int64(-1), [-1, -1, -1]), (np.array(-1), [-1, -1, -1])),
        *(([1, -1, 1], [1, -1, 1]), (np.array([1, -1, 1]), [1, -1, 1])),
        *(({"b": -1}, [1, -1, 1]), ({"b": np.int64(-1)}, [1, -1, 1])),
    ):
        imputer = NotMIWAEImputer(
            missingness="self-masking-logistic", signs=signs, random_state=0, **{**SMALL, "max_epochs": 0}
        )
        mask_model = imputer.fit(table).model_.mask_model
        assert torch.sign(mask_model.slope).tolist() == expected
    with pytest.raises(ValueError, match="signs refers to column 'd', which is not in the table"):
        NotMIWAEImputer(missingness="self-masking-monotone", signs={"d": 1}, **SMALL).fit(table)
    for wrong in ([1, 0, 1], [1, 1], 1.5, "up", [1, None, 1]):
        with pytest.raises(ValueError, match=r"signs must be \+1 or -1"):
            NotMIWAEImputer(missingness="self-masking-monotone", signs=wrong, **SMALL).fit(table)


def test_of_several_starts_that_with_the_best_held_out_bound_is_kept():
    table = line()
    several = LatentImputer(n_starts=3, random_state=0, **SMALL).fit(table)
    first = LatentImputer(n_starts=1, random_state=0, **SMALL).fit(table)
    assert min(several.history_.validation_loss) <= min(first.history_.validation_loss)


def test_poor_weights_warn_with_a_remedy():
    table = line()
    imputer = MIWAEImputer(random_state=0, **{**SMALL, "n_imputation_draws": 200}).fit(table)
    with torch.no_grad():  # a posterior in the wrong place, and no proposal to help
        imputer.model_.encoder.output.bias[0] += 1.0
    rows = imputer._encoding.rows(Incomplete.from_array(table))
    with pytest.warns(HalfseenWarning, match=r"importance weights .* raise n_imputation_draws"):
        check_importance_weights(replace(imputer.sampler_, adapts=False), rows)
    check_importance_weights(imputer.sampler_, rows)  # no warning: rows get proposals of their own


def test_chains_move_draws_and_nothing_else(tmp_path):
    table = line(60) + 0.3 * np.random.default_rng(1).normal(size=(60, 3))  # no column is nearly a copy
    settings = {**SMALL, "random_state": 0, "n_imputation_draws": 3}
    resampled, moved = (LatentImputer(n_chain_steps=steps, **settings).fit(table) for steps in (0, 5))
    assert np.array_equal(moved.transform(table), resampled.transform(table))
    draws = [imputer.sample(table, n_draws=2) for imputer in (resampled, moved)]
    holes = np.isnan(table)
    assert (draws[0] != draws[1])[:, holes].mean() > 0.5
    assert np.array_equal(draws[1][:, ~holes], np.tile(table[~holes], (2, 1)))
    one = moved.sample(table[5:6], n_draws=2)
    np.testing.assert_allclose(one[:, 0], draws[1][:, 5], rtol=1e-9)  # a row's chains are its own
    moved.save(tmp_path / "model")
    assert np.array_equal(halfseen.load(tmp_path / "model").sample(table, n_draws=2), draws[1])
    with pytest.raises(ValueError, match="n_chain_steps must be 0"):
        LatentImputer(n_chain_steps=5, posterior="mixture", **settings).fit(table)


def test_the_model_is_a_torch_module_beside_the_sampler_and_can_decode_latents(tmp_path):
    table = np.where(np.random.default_rng(0).random((40, 3)) < 0.2, np.nan, np.arange(120.0).reshape(40, 3))
    imputer = MIWAEImputer(random_state=0, n_latent=2, max_epochs=1, n_imputation_draws=20).fit(table)
    imputer.save(tmp_path / "model.halfseen")
    for one in (imputer, halfseen.load(tmp_path / "model.halfseen")):
        assert isinstance(one.model_, torch.nn.Module)
        assert one.sampler_.model is one.model_
        assert sum(weights.numel() for weights in one.model_.parameters()) > 100
        decoded = one.model_.decoder(torch.zeros(5, 2, dtype=torch.float64))
        assert decoded.shape == (5, one.model_.observation.n_parameters)
        assert torch.equal(decoded, imputer.model_.decoder(torch.zeros(5, 2, dtype=torch.float64)))
    constant = imputer.fit(np.ones((40, 3)))
    assert constant.model_ is None
    assert constant.sampler_ is None


@pytest.mark.slow
def test_intervals_of_an_overconfident_model_are_inflated_and_the_factors_are_saved(tmp_path):
    rng = np.random.default_rng(0)
    complete = rng.normal(size=(600, 1)) + rng.normal(size=(600, 6))
    table = np.where(rng.random(complete.shape) < 0.2, np.nan, complete)
    imputer = MIWAEImputer(random_state=0, n_latent=1, max_epochs=0, validation_fraction=0.5).fit(table)
    assert max(imputer.interval_inflation_) < 1.2
    with torch.no_grad():
        imputer.model_.decoder.output.bias[6:12] -= 1.5  # of the scales
    rows = imputer._encoding.rows(Incomplete.from_array(table))
    imputer.sampler_ = imputer._calibrated(imputer.sampler_, imputer._split(rows)[1])
    assert min(imputer.interval_inflation_) > 1.5
    low, high = imputer.interval(table)
    assert 0.85 < ((low <= complete) & (complete <= high))[np.isnan(table)].mean() < 0.95
    imputer.save(tmp_path / "model.halfseen")
    loaded = halfseen.load(tmp_path / "model.halfseen")
    assert loaded.interval_inflation_ == imputer.interval_inflation_
    for saved, now in zip(loaded.interval(table), (low, high), strict=True):
        assert np.array_equal(saved, now)
    assert (
        MIWAEImputer(random_state=0, max_epochs=0).fit(table[:40]).interval_inflation_ == []
    )  # holds out no row


@pytest.mark.parametrize(
    ("parameter", "value", "message"),
    [
        ("encoder", "none", "encoder must be one of"),
        ("n_chain_steps", -1, "n_chain_steps must be at least 0"),
        ("posterior", "student", r"posterior must be one of .*, got 'student'"),
        ("bound", "vb", r"bound must be one of .*, got 'vb'"),
        ("missingness", "odd", r"missingness must be one of .*, got 'odd'"),
        ("missingness", 3, "a mechanism or a function, got 3"),
        (
            "signs",
            1,
            "signs is available for missingness='self-masking-logistic' and .*, got missingness='mar'",
        ),
        ("n_components", 0, "n_components must be at least 1, got 0"),
        ("n_latent", 0, "n_latent must be 'auto' or at least 1, got 0"),
        ("n_latent", None, "n_latent must be 'auto' or a whole number of at least 1, got None"),
        ("n_latent", 1.5, "n_latent must be 'auto' or a whole number of at least 1, got 1.5"),
        ("batch_size", "large", "batch_size must be 'auto' or a whole number of at least 1, got 'large'"),
        ("batch_size", 0.5, "batch_size must be 'auto' or a whole number of at least 1, got 0.5"),
        ("max_epochs", -1, "max_epochs must be 'auto' or at least 0, got -1"),
        ("max_epochs", None, "max_epochs must be 'auto' or a whole number of at least 0, got None"),
        *(
            (name, value, f"{name} must be a whole number of at least {lowest}, got {value!r}")
            for name, lowest in (
                *(("width", 0), ("n_blocks", 0), ("n_components", 1), ("n_starts", 1), ("n_draws", 1)),
                *(("n_imputation_draws", 1), ("n_chain_steps", 0), ("patience", 1)),
            )
            for value in ("8", None, 1.5, True)
        ),
        ("learning_rate", "fast", "learning_rate must be positive and finite, got 'fast'"),
        ("validation_fraction", None, r"validation_fraction must be in \[0, 1\), got None"),
        ("validation_fraction", 1.0, r"validation_fraction must be in \[0, 1\), got 1.0"),
        ("n_imputation_draws", 0, "n_imputation_draws must be at least 1, got 0"),
    ],
)
def test_what_cannot_be_is_refused(parameter, value, message):
    with pytest.raises(ValueError, match=message):
        LatentImputer(**{parameter: value}).fit(line())


def test_whole_numbers_of_numpy_are_whole_numbers(tmp_path):
    whole = {name: np.int64(value) for name, value in SMALL.items()}
    one, other = (LatentImputer(random_state=0, **sizes).fit(line()) for sizes in (whole, SMALL))
    one.save(tmp_path / "model")
    for imputer in (one, halfseen.load(tmp_path / "model")):
        assert np.array_equal(imputer.transform(line()), other.transform(line()))


@pytest.mark.parametrize("shape", [None, (8, 8)], ids=["table", "images"])
def test_a_known_mechanism_that_returns_no_tensor_is_refused_with_what_it_returned(shape):
    pixels = np.where(np.eye(60, 64), np.nan, np.arange(60 * 64).reshape(60, 64) % 2)
    table = line() if shape is None else pixels
    imputer = LatentImputer(missingness=lambda x: np.full(x.shape, 0.5), image_shape=shape, **SMALL)
    with pytest.raises(ValueError, match=r"to a torch tensor of probabilities of shape .*, got ndarray"):
        imputer.fit(table)


@pytest.mark.parametrize(
    "wrap", [lambda module: module, lambda module: lambda x: module(x)], ids=["module", "function"]
)
@pytest.mark.parametrize("make", [LatentImputer, NotMIWAEImputer])
def test_a_module_whose_parameters_would_not_be_trained_is_refused_unless_frozen(make, wrap):
    table = line(40)
    linear = torch.nn.utils.skip_init(torch.nn.Linear, table.shape[1], table.shape[1], dtype=torch.float64)
    torch.nn.init.zeros_(linear.weight)
    torch.nn.init.zeros_(linear.bias)
    module = torch.nn.Sequential(linear, torch.nn.Sigmoid())
    imputer = make(missingness=wrap(module), random_state=0, **SMALL)
    with pytest.raises(
        ValueError, match=r"parameters .* are not trained\. Freeze them, .* choose one of 'mar'"
    ):
        imputer.fit(table)
    module.requires_grad_(False)
    assert np.isfinite(imputer.fit(table).transform(table)).all()


def test_warnings_of_fit_name_the_line_that_called_it(monkeypatch):
    trusted = latent_weights.ImportanceSampler.weight_diagnostics

    def untrusted(sampler, rows):
        weight_diagnostics = trusted(sampler, rows)
        return replace(
            weight_diagnostics,
            pareto_k=torch.ones_like(weight_diagnostics.pareto_k),
            ess=torch.ones_like(weight_diagnostics.ess),
        )

    monkeypatch.setattr(latent_weights.ImportanceSampler, "weight_diagnostics", untrusted)
    table = pd.DataFrame(line(), columns=list("abc")).assign(empty=np.nan)
    table["name"] = [None, *(f"person {i}" for i in range(len(table) - 1))]
    for call in (LatentImputer.fit, LatentImputer.fit_transform):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            call(LatentImputer(random_state=0, **SMALL), table)
        for message in ("has no observed value", "looks like an identifier", "importance weights"):
            (warning,) = (warning for warning in found if message in str(warning.message))
            assert warning.filename == __file__


def test_training_reports_its_progress():
    records = []
    MIWAEImputer(callback=records.append, random_state=0, **SMALL).fit(line())
    assert [record.epoch for record in records] == [1, 2, 3]
    assert all(math.isfinite(record.train_loss) for record in records)


@pytest.mark.slow
def test_imputations_beside_an_outlier_move_smoothly_and_its_score_falls():
    """Far out a value counts as noise, and its neighbours are filled as if it were not there."""
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(300, 1)) + 0.3 * rng.normal(size=(300, 4))
    table = np.where(rng.random(truth.shape) < 0.2, np.nan, truth)
    imputer = MIWAEImputer(max_epochs=2, random_state=0).fit(table)
    far = np.array([20.0, 30.0, 40.0, 60.0, 100.0, 1e4, 1e160, 1e300])
    rows = np.column_stack([far, np.full(len(far), np.nan), np.ones(len(far)), np.ones(len(far))])
    filled, scores = imputer.transform(rows)[:, 1], imputer.score_samples(rows)
    assert np.abs(filled[:-2] - 1.0).max() < 0.5
    assert np.abs(filled[-2:]).max() < 1.5  # values without any sense
    assert (np.diff(scores[:-1]) < 0).all()
    np.testing.assert_array_equal(imputer.transform(rows)[:, 0], far)
