"""The device of the training: how it is found, and what the loop leaves on it."""

import pytest
import torch
from strict_device import strict_device
from torch import nn

from halfseen._threads import find_device, moved
from halfseen.data.incomplete import Incomplete
from halfseen.training.loop import TrainingSettings, fit_module
from halfseen.training.supervised import Labelled, SquaredError

SETTINGS = TrainingSettings(max_epochs=4, batch_size=8, compile=False)


class _Line(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(3, 1))

    def forward(self, x):
        return x @ self.weight


def _rows(n_rows):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n_rows, 3, generator=generator)
    return Labelled(x, x.sum(dim=1, keepdim=True), torch.ones(n_rows))


def _train(device="cpu", **options):
    module = _Line()
    settings = TrainingSettings(
        max_epochs=4, batch_size=8, compile=options.pop("compile", False), device=device
    )
    generator = torch.Generator().manual_seed(1)
    train, held_out = _rows(20), _rows(7)
    history = fit_module(
        module, SquaredError(), train, generator=generator, validation=held_out, settings=settings, **options
    )
    return module, history


def test_the_device_must_exist():
    with pytest.raises(
        ValueError, match=r"device must be 'auto' or the name of a device of torch.*got 'warp'"
    ):
        find_device("warp")
    with pytest.raises(ValueError, match=r"device must be .*got None"):
        find_device(None)


@pytest.mark.parametrize("name", ["cuda:99", "meta", "cpu:1"])
def test_the_device_must_be_available(name):
    with pytest.raises(ValueError, match=f"The device '{name}' is not available: torch finds 'cpu'"):
        find_device(name)


def _with_devices(monkeypatch, *kinds):
    counts = dict.fromkeys(("cpu", *kinds), 1)
    monkeypatch.setattr("halfseen._threads._n_devices", lambda kind: counts.get(kind, 0))


def test_the_automatic_device_is_the_first_that_can_train_the_model(monkeypatch):
    _with_devices(monkeypatch)
    assert find_device("auto").type == "cpu"
    _with_devices(monkeypatch, "mps")
    assert find_device("auto").type == "mps"
    assert find_device("auto", _Line().double()).type == "cpu"
    with pytest.raises(ValueError, match="'mps' has no double precision"):
        find_device("mps", _Line().double())
    _with_devices(monkeypatch, "mps", "cuda")
    assert find_device("auto", _Line().double()).type == "cuda"


def test_training_on_a_device_leaves_the_module_on_the_cpu_and_the_results_as_they_are():
    expected, course = _train()
    with strict_device() as name:
        module, history = _train(name)
    assert module.weight.device.type == "cpu"
    assert torch.equal(module.weight, expected.weight)
    assert history.train_loss == course.train_loss
    assert history.validation_loss == course.validation_loss


def test_a_module_returns_to_the_cpu_after_an_interruption():
    def interrupt(progress):
        raise KeyboardInterrupt

    module, generator = _Line(), torch.Generator().manual_seed(1)
    with strict_device() as name:
        settings = TrainingSettings(max_epochs=4, batch_size=8, device=name)
        with pytest.raises(KeyboardInterrupt):
            fit_module(
                module, SquaredError(), _rows(20), generator=generator, settings=settings, callback=interrupt
            )
    assert module.weight.device.type == "cpu"


def test_a_training_on_a_device_is_resumed_on_it_and_not_on_another(tmp_path):
    with strict_device() as name:
        whole, _ = _train(name)

        def interrupt(progress):
            if progress.epoch == 2:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            _train(name, checkpoint=tmp_path / "run", callback=interrupt)
        resumed, history = _train(name, checkpoint=tmp_path / "run")
    assert len(history.train_loss) == 4
    assert torch.equal(resumed.weight, whole.weight)
    with pytest.raises(ValueError, match="device was 'strict'"):
        _train(checkpoint=tmp_path / "run")


def test_steps_on_another_device_are_not_compiled():
    with strict_device() as name:
        assert not _train(name, compile=True)[1].compiled


def test_rows_are_moved_with_all_their_tensors():
    rows = Labelled(Incomplete(torch.zeros(2, 3), torch.ones(2, 3).bool()), torch.zeros(2), torch.ones(2))
    assert moved(rows, torch.device("cpu")) is rows
    there = moved((rows, "text"), torch.device("meta"))
    assert there[1] == "text"
    assert {part.device.type for part in (there[0].rows.x, there[0].rows.observed, there[0].weight)} == {
        "meta"
    }


def test_the_device_of_the_tests_refuses_tensors_of_two_devices():
    with strict_device() as name, pytest.raises(RuntimeError, match="mixes tensors of two devices"):
        torch.ones(3).to(name) + torch.ones(3)
