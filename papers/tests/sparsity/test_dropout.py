"""The experiment on dropout: its split, its two networks, and that their masks are paired."""

import numpy as np
import pandas as pd
import pytest
import torch

from halfseen.nn.residual import reset_layers
from papers.sparsity import dropout as sparsity_dropout
from papers.sparsity.dropout import RMSE, DropoutMLP, make_task, score


@pytest.fixture
def table(monkeypatch):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.uniform(-5, 5, size=(60, 3)), columns=["a", "b", "c"])
    frame["target"] = 100 + 10 * frame["a"]
    monkeypatch.setattr(sparsity_dropout, "load", lambda name, backend: frame)
    monkeypatch.setattr(sparsity_dropout, "EPOCHS", {"diabetes": 2})


def test_the_parts_are_scaled_by_the_training_rows(table):
    task = make_task({"table": "diabetes", "rate": 0.5}, 0)
    assert [len(part) for part in (task.train, task.held, task.test)] == [44, 10, 6]
    assert task.train.rows.min() == 0
    assert task.train.rows.max() == 1
    assert float(task.train.target.std(correction=0)) == pytest.approx(1.0, abs=1e-5)


def test_both_networks_are_the_same_unless_the_number_of_kept_units_is_unusual(generator):
    x = torch.rand(5, 3, generator=generator)
    half = [torch.arange(8).expand(5, 8) % 2 == 0]
    networks = [DropoutMLP(3, 0.5, exact=exact, widths=[8]) for exact in (False, True)]
    reset_layers(networks[0], generator)
    networks[1].load_state_dict(networks[0].state_dict())
    torch.testing.assert_close(networks[0](x), networks[1](x))
    torch.testing.assert_close(networks[0](x, half), networks[1](x, half))
    few = [torch.arange(8).expand(5, 8) < 2]
    assert not torch.allclose(networks[0](x, few), networks[1](x, few))


def test_without_dropout_both_runs_are_the_same_draw_for_draw(table):
    task = make_task({"table": "diabetes", "rate": 0.0}, 0)
    assert score(True, task) == score(False, task)
    assert score(True, task)[RMSE] > 0
