"""Interrupted fits that resume: `halfseen.checkpoints` and ``halfseen impute --checkpoint``."""

import errno
from contextvars import copy_context

import numpy as np
import pytest

import halfseen
from halfseen import HalfseenWarning, MIWAEImputer, NotMIWAEImputer
from halfseen.latent import DeMissVAEImputer
from halfseen.neumiss import NeuMissNetworkRegressor


def table(seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(80, 3)) + rng.normal(size=(80, 1))
    x[rng.random(x.shape) < 0.2] = np.nan
    return x


def stop_after(n_epochs):
    calls = iter(range(n_epochs))

    def callback(progress):
        if next(calls, None) is None:
            raise KeyboardInterrupt

    return callback


def counted(epochs):
    return lambda progress: epochs.append(progress.epoch)


@pytest.mark.parametrize("kind", [MIWAEImputer, NotMIWAEImputer, DeMissVAEImputer])
def test_an_interrupted_fit_resumes_to_the_same_answers(kind, tmp_path):
    settings = {"max_epochs": 3, "width": 8, "n_imputation_draws": 20, "random_state": 0}
    expected = kind(**settings, callback=counted(all_epochs := [])).fit(table())
    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt), halfseen.checkpoints(folder):
        kind(**settings, callback=stop_after(4 if kind is DeMissVAEImputer else 1)).fit(table())
    assert len(list(folder.iterdir())) >= 1
    with halfseen.checkpoints(folder):
        resumed = kind(**settings, callback=counted(resumed_epochs := [])).fit(table())
    assert len(resumed_epochs) < len(all_epochs)
    np.testing.assert_array_equal(resumed.transform(table(1)), expected.transform(table(1)))
    assert not list(folder.iterdir())


def test_a_predictor_resumes_too(tmp_path):
    settings = {"max_epochs": 4, "depth": 2, "width": 8, "random_state": 0}
    y = np.nan_to_num(table()).sum(axis=1)
    expected = NeuMissNetworkRegressor(**settings).fit(table(), y).predict(table(1))
    model = NeuMissNetworkRegressor(**settings)
    with pytest.raises(ValueError, match="expecting 3 features"), halfseen.checkpoints(tmp_path):
        model.fit(table(), y).predict([[1.0]])  # an error after training
    [file] = tmp_path.iterdir()
    with halfseen.checkpoints(tmp_path):
        resumed = NeuMissNetworkRegressor(**settings).fit(table(), y)
        assert file.exists()
    np.testing.assert_array_equal(resumed.predict(table(1)), expected)
    assert not file.exists()
    assert tmp_path.exists()  # it was there before


def test_other_data_never_continue_a_checkpoint(tmp_path):
    settings = {"max_epochs": 2, "width": 8, "n_imputation_draws": 20, "random_state": 0}
    with pytest.raises(KeyboardInterrupt), halfseen.checkpoints(tmp_path):
        MIWAEImputer(**settings, callback=stop_after(1)).fit(table())
    with halfseen.checkpoints(tmp_path):
        other = MIWAEImputer(**settings).fit(table(1))
    expected = MIWAEImputer(**settings).fit(table(1))
    np.testing.assert_array_equal(other.transform(table(2)), expected.transform(table(2)))
    assert len(list(tmp_path.iterdir())) == 1  # that of the first table is still there


def test_nothing_is_kept_outside_of_the_block(tmp_path):
    with halfseen.checkpoints(tmp_path / "new"):
        assert (tmp_path / "new").is_dir()
    MIWAEImputer(max_epochs=1, width=8, n_imputation_draws=20).fit(table())
    assert not list(tmp_path.iterdir())


SMALL = {"max_epochs": 3, "width": 8, "n_imputation_draws": 20, "random_state": 0}


def begun(folder):
    """A context in which checkpoints are kept, and what ends it."""
    context, block = copy_context(), halfseen.checkpoints(folder)
    context.run(block.__enter__)
    return context, lambda: context.run(block.__exit__, None, None, None)


def test_a_run_that_ends_leaves_a_folder_to_another_run_that_shares_it(tmp_path):
    folder = tmp_path / "new"
    (_, end_first), (second, end_second) = begun(folder), begun(folder)
    end_first()
    with pytest.raises(KeyboardInterrupt):
        second.run(MIWAEImputer(**SMALL, callback=stop_after(1)).fit, table())
    [kept] = folder.iterdir()
    resumed = second.run(MIWAEImputer(**SMALL, callback=counted(epochs := [])).fit, table())
    assert len(epochs) == 1  # of three
    expected = MIWAEImputer(**SMALL).fit(table())
    np.testing.assert_array_equal(resumed.transform(table(1)), expected.transform(table(1)))
    end_second()
    assert not kept.exists()
    assert not folder.exists()


def test_equal_runs_that_share_a_folder_both_end_with_their_answers(tmp_path):
    (first, end_first), (second, end_second) = begun(tmp_path / "new"), begun(tmp_path / "new")
    with pytest.raises(KeyboardInterrupt):
        second.run(MIWAEImputer(**SMALL, callback=stop_after(1)).fit, table())
    answers = first.run(MIWAEImputer(**SMALL).fit, table()).transform(table(1))
    end_first()  # and removes the file of both
    again = second.run(MIWAEImputer(**SMALL).fit, table()).transform(table(1))
    end_second()
    np.testing.assert_array_equal(again, answers)


def test_a_full_disk_does_not_end_the_training(tmp_path, monkeypatch):
    def disk_full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    expected = MIWAEImputer(**SMALL).fit(table())
    monkeypatch.setattr("os.fsync", disk_full)
    with (
        pytest.warns(
            HalfseenWarning, match=r"cannot be written \(no space left on device\). Training continues"
        ),
        halfseen.checkpoints(tmp_path / "new"),
    ):
        fitted = MIWAEImputer(**SMALL).fit(table())
    np.testing.assert_array_equal(fitted.transform(table(1)), expected.transform(table(1)))
    assert not list(tmp_path.iterdir())


def test_an_interruption_on_a_full_disk_is_still_an_interruption(tmp_path, monkeypatch):
    def disk_full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", disk_full)
    with (
        pytest.warns(HalfseenWarning, match="cannot be written"),
        pytest.raises(KeyboardInterrupt),
        halfseen.checkpoints(tmp_path),
    ):
        MIWAEImputer(**SMALL, callback=stop_after(1)).fit(table())
