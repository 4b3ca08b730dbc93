"""Gradients of several processes are those of one; lower precision changes little, and only if asked for."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from tolerances import EXACT

import halfseen
from halfseen.errors import TrainingError
from halfseen.training import gradients
from halfseen.training.gradients import GradientPlan, check_shared, gradient_plan

HERE = Path(__file__).parent
ON_LOOPBACK = os.environ | ({"GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {})


@pytest.fixture
def sharing(monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))
    import sharing

    return sharing


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 2)) @ rng.normal(size=(2, 5)) + 0.3 * rng.normal(size=(400, 5))
    return np.where(rng.random(x.shape) < 0.2, np.nan, x)


def test_pieces_cover_a_batch_in_order():
    for n_rows in (1, 2, 7, 8, 9, 250):
        pieces = GradientPlan(8).pieces(n_rows)
        assert np.concatenate([np.arange(n_rows)[piece] for piece in pieces]).tolist() == list(range(n_rows))
        assert len(pieces) <= 8


def test_the_gradient_of_pieces_is_that_of_the_batch(table):
    whole = halfseen.MixtureImputer(max_epochs=5, random_state=0).fit(table)
    with halfseen.data_parallel(n_pieces=3):
        divided = halfseen.MixtureImputer(max_epochs=5, random_state=0).fit(table)
    np.testing.assert_allclose(divided.history_.train_loss, whole.history_.train_loss, rtol=EXACT)
    np.testing.assert_allclose(divided.transform(table), whole.transform(table), rtol=1e-8)


def test_a_plan_ends_with_its_context_and_plans_are_combined():
    with halfseen.data_parallel(2), halfseen.mixed_precision():
        assert gradient_plan() == GradientPlan(2, True)
    assert gradient_plan() == GradientPlan()
    with pytest.raises(ValueError, match="n_pieces must be a whole number of at least 1, got 0"):
        halfseen.data_parallel(0)


def test_an_objective_with_a_state_is_not_shared(monkeypatch):
    monkeypatch.setattr(gradients, "is_shared", lambda: True)
    check_shared(resumable=True)
    with pytest.raises(TrainingError, match="cannot be trained by several processes"):
        check_shared(resumable=False)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def start_by_hand(script, *arguments):
    """Starts two processes that find each other by the environment."""
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    command = [sys.executable, script, *arguments]
    environments = ({**ON_LOOPBACK, **shared, "RANK": str(rank)} for rank in range(2))
    running = [subprocess.Popen(command, env=one) for one in environments]
    return [one.wait(timeout=300) for one in running]


def start_by_torchrun(script, *arguments):
    """Starts two processes by the launcher that the guide names."""
    place = ("--master-addr", "127.0.0.1", "--master-port", str(free_port()))
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", *place]
    return [subprocess.run([*command, script, *arguments], env=ON_LOOPBACK, timeout=300).returncode] * 2


@pytest.mark.slow
@pytest.mark.parametrize("start", [start_by_hand, start_by_torchrun])
def test_two_processes_compute_the_gradients_of_one(sharing, tmp_path, start):
    if not (torch.distributed.is_available() and torch.distributed.is_gloo_available()):
        pytest.skip("this build of torch has no gloo")
    assert start(str(HERE / "sharing.py"), str(tmp_path / "found")) == [0, 0]
    first, second = (torch.load(f"{tmp_path}/found.{rank}", weights_only=False) for rank in range(2))
    alone = sharing.train()
    assert len(alone["gradients"]) > 4 * 4
    for ours, theirs, expected in zip(
        first["gradients"], second["gradients"], alone["gradients"], strict=True
    ):
        for one, other, wanted in zip(ours, theirs, expected, strict=True):
            assert torch.equal(one, other)
            torch.testing.assert_close(one, wanted, rtol=1e-12, atol=1e-12)
    assert first["loss"] == second["loss"]
    np.testing.assert_allclose(first["loss"], alone["loss"], rtol=1e-12)
    assert (first["filled"] == second["filled"]).all()
    np.testing.assert_allclose(first["filled"], alone["filled"], rtol=1e-9)


def test_lower_precision_is_off_by_default_and_changes_little(table):
    def fit():
        return halfseen.MIWAEImputer(max_epochs=20, random_state=0).fit(table)

    full = fit()
    with halfseen.mixed_precision():
        lower = fit()
    assert fit().history_.train_loss == full.history_.train_loss != lower.history_.train_loss
    assert np.isfinite(lower.history_.train_loss).all()
    np.testing.assert_allclose(lower.history_.train_loss, full.history_.train_loss, atol=0.1)
    filled, expected = lower.transform(table), full.transform(table)
    hidden = np.isnan(table)
    assert np.isfinite(filled).all()
    assert np.sqrt(np.mean((filled - expected)[hidden] ** 2)) < 0.1 * np.nanstd(table)


def test_models_in_double_precision_are_not_affected_by_lower_precision(table):
    with halfseen.mixed_precision():
        lower = halfseen.MixtureImputer(max_epochs=3, random_state=0).fit(table)
    full = halfseen.MixtureImputer(max_epochs=3, random_state=0).fit(table)
    assert lower.history_.train_loss == full.history_.train_loss
