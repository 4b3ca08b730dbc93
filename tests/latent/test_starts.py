"""Starts of latent-variable imputers: which rows judge them, and what the second one is for."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.exceptions import NotFittedError

from halfseen.latent import training as latent_training
from halfseen.latent.presets import DeMissVAEImputer, LatentImputer, MIWAEImputer, NotMIWAEImputer

SMALL = {"n_latent": 1, "width": 8, "n_blocks": 1, "max_epochs": 2, "n_imputation_draws": 64}


def cut_off(n_rows=200, seed=0):
    """A column that is almost constant where observed, and missing for the half given by another column."""
    rng = np.random.default_rng(seed)
    group = rng.random(n_rows) < 0.45
    amount = np.where(group, rng.uniform(5.0, 9.0, size=n_rows), 0.2 * rng.normal(size=n_rows))
    table = np.column_stack([amount, 2.0 * group + 0.3 * rng.normal(size=n_rows), rng.normal(size=n_rows)])
    table[group, 0] = np.nan
    return table, group


@pytest.fixture
def held_out(monkeypatch):
    """The rows that trainings hold out, in their order."""
    found, fit_module = [], latent_training.fit_module

    def recorded(*args, validation, **options):
        found.append(torch.where(validation.observed, validation.x, 1e9))
        return fit_module(*args, validation=validation, **options)

    monkeypatch.setattr(latent_training, "fit_module", recorded)
    return found


def test_all_starts_and_all_architectures_are_judged_by_the_same_rows(held_out):
    table, _ = cut_off(n_rows=80)
    NotMIWAEImputer(random_state=0, **SMALL).fit(table)
    NotMIWAEImputer(random_state=0, decoder="linear", numeric="shared-gaussian", **SMALL).fit(table)
    assert len(held_out) == 4
    assert all(torch.equal(rows, held_out[0]) for rows in held_out)
    NotMIWAEImputer(random_state=1, **SMALL).fit(table)
    assert not torch.equal(held_out[-1], held_out[0])


def test_the_start_with_the_best_held_out_bound_is_kept(monkeypatch):
    losses = []

    def recorded(*args, **options):
        history = fit_module(*args, **options)
        losses.append(min(history.monitored))
        return history

    fit_module = latent_training.fit_module
    monkeypatch.setattr(latent_training, "fit_module", recorded)
    imputer = LatentImputer(missingness="self-masking-logistic", n_starts=2, random_state=0, **SMALL)
    imputer.fit(cut_off(n_rows=80)[0])
    assert len(set(losses)) == 4  # from a probit and from steps, twice each
    assert min(imputer.history_.monitored) == min(losses)


@pytest.mark.slow
@pytest.mark.parametrize("sign", [1, -1])
def test_values_that_were_cut_off_are_filled_in_beyond_those_that_were_seen(sign, monkeypatch):
    """The steep start has the better bound here than two trainings from a probit, and is kept for it."""
    table, group = cut_off()
    table[:, 0] *= sign
    settings = {"random_state": 0, "width": 16, "n_blocks": 1, "max_epochs": 60, "n_latent": 2}
    settings |= {"missingness": "self-masking-logistic", "signs": sign}
    both = NotMIWAEImputer(**settings).fit(table)
    beyond = sign * both.transform(table)[group, 0] > np.nanmax(sign * table[:, 0])
    assert beyond.mean() > 0.95
    assert abs(float(both.model_.mask_model.slope[0].detach())) > 10
    monkeypatch.setattr(latent_training, "start_from_edges", lambda *_: None)
    flat = NotMIWAEImputer(**settings).fit(table)
    assert min(both.history_.monitored) < min(flat.history_.monitored)


def test_learned_probabilities_are_those_of_the_mask_in_the_units_of_the_table():
    table, _ = cut_off()
    imputer = NotMIWAEImputer(missingness="self-masking-logistic", signs=1, random_state=0, **SMALL).fit(
        table
    )
    values = torch.tensor([-1.0, 0.5, 7.0], dtype=torch.float64)
    found = torch.from_numpy(imputer.mask_probabilities("x0", values.numpy()))
    seen = table[~np.isnan(table[:, 0]), 0]
    x = torch.zeros(3, 3, dtype=torch.float64)
    x[:, 0] = (values - seen.mean()) / seen.std()
    mask_model = imputer.model_.mask_model
    expected = mask_model.log_prob(x, torch.tensor([False, True, True])).exp().detach()
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-8)
    assert (found.diff() > 0).all()
    assert imputer.mask_probabilities("x1", values.numpy()).tolist() == [0.0] * 3


def test_probabilities_of_what_was_not_modelled_are_refused():
    table, _ = cut_off()
    with pytest.raises(ValueError, match="assumes values missing at random"):
        MIWAEImputer(random_state=0, **SMALL).fit(table).mask_probabilities("x0", [0.0])
    frame = pd.DataFrame(table, columns=["a", "b", "c"]).assign(
        level=np.where(np.arange(len(table)) % 3, "a", "b")
    )
    fitted = NotMIWAEImputer(random_state=0, **SMALL).fit(frame)
    with pytest.raises(ValueError, match="Column 'level' is not a numeric column that is modelled"):
        fitted.mask_probabilities("level", [0.0])


@pytest.mark.parametrize(("n_rows", "share"), [(1000, 1.0), (20_000, 0.5)])
def test_the_two_starts_of_a_large_table_share_the_steps(n_rows, share):
    imputer = NotMIWAEImputer()
    one, two = (imputer._training().settings(n_rows, n_kinds) for n_kinds in (1, 2))
    assert one.batch_size == two.batch_size
    assert two.max_epochs == pytest.approx(share * one.max_epochs, abs=1)
    assert 2500 <= one.max_epochs * np.ceil(n_rows / one.batch_size) < 2600


def test_a_table_that_does_not_hide_itself_is_trained_once_for_each_start(held_out):
    table, _ = cut_off(n_rows=80)
    MIWAEImputer(random_state=0, **SMALL).fit(table)
    assert len(held_out) == 1
    LatentImputer(missingness="linear", random_state=0, **SMALL).fit(table)
    assert len(held_out) == 3  # first as if cells were missing at random


class Interrupting:
    """A callback that is interrupted once, in the given epoch counted over all trainings."""

    def __init__(self, at):
        self.at, self.n_calls = at, 0

    def __call__(self, progress):
        self.n_calls += 1
        if self.n_calls == self.at:
            raise KeyboardInterrupt


@pytest.mark.parametrize(
    "make",
    [
        DeMissVAEImputer,
        NotMIWAEImputer,
        lambda **settings: NotMIWAEImputer(missingness="linear", **settings),
        lambda **settings: LatentImputer(n_starts=5, **settings),
    ],
    ids=["encoder", "second start", "next phase", "other starts"],
)
def test_an_interrupt_ends_all_of_training(make):
    table, _ = cut_off(n_rows=80)
    callback = Interrupting(at=2)
    imputer = make(callback=callback, random_state=0, **{**SMALL, "max_epochs": 6})
    with pytest.raises(KeyboardInterrupt):
        imputer.fit(table)
    assert callback.n_calls == 2
    with pytest.raises(NotFittedError):
        imputer.transform(table)
