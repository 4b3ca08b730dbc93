"""The optimisation loop: what it minimises, when it stops, how it recovers and how it resumes."""

import errno
import json
import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from safetensors import safe_open
from tolerances import EXACT
from torch import Tensor, nn

from halfseen.base.density import NegativeLogLikelihood
from halfseen.data.incomplete import Incomplete
from halfseen.errors import HalfseenWarning, ModelFileError, TrainingError
from halfseen.mixtures.imputer import DiagonalMixture
from halfseen.training import loop
from halfseen.training.loop import TrainingSettings, fit_module
from halfseen.training.progress import Backoff, History, time_limit
from halfseen.training.step import Optimiser, functional_update

SETTINGS = TrainingSettings(max_epochs=12, batch_size=16, learning_rate=0.05, patience=100, compile=False)


@dataclass(frozen=True)
class Labelled:
    """Rows of another kind than Incomplete: the loop asks for a length and for rows, nothing else."""

    batch: Incomplete
    y: Tensor

    def __len__(self):
        return len(self.y)

    def __getitem__(self, rows):
        return Labelled(self.batch[rows], self.y[rows])


class Linear(nn.Module):
    def __init__(self, n_features):
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(n_features, dtype=torch.float64))
        self.register_buffer("size", torch.tensor(n_features))  # integers travel in checkpoints too

    def predict(self, batch):
        return batch.filled(0.0) @ self.weights


@dataclass(frozen=True)
class NoisySquare:
    """The squared error, plus noise that a gradient sees; calls a method other than forward."""

    noise: float = 0.0

    def draw_noise(self, rows, generator):
        return (self.noise * torch.randn(len(rows), generator=generator, dtype=torch.float64),)

    def __call__(self, module, rows, noise):
        return (module.predict(rows.batch) + noise[0] - rows.y).square()


class Poisoned:
    """Another objective that is `value` at the evaluations listed, counted from 0; or its gradient is."""

    def __init__(self, inner, at, value=math.nan, in_gradient=False, interrupted_at=None):
        self.inner, self.at, self.value, self.in_gradient = inner, at, value, in_gradient
        self.interrupted_at = interrupted_at
        self.count = 0

    def draw_noise(self, rows, generator):
        return self.inner.draw_noise(rows, generator)

    def __call__(self, module, rows, noise):
        loss = self.inner(module, rows, noise)
        poison = self.count in self.at
        if self.count == self.interrupted_at:
            raise KeyboardInterrupt
        self.count += 1
        if poison and self.in_gradient:
            zero = next(module.parameters()).sum() * 0.0
            return loss + zero.abs().sqrt()  # value 0, gradient 0 / 0
        return loss + self.value if poison else loss


def labelled_rows(generator, n_rows=101, n_features=3):
    x = torch.randn(n_rows, n_features, generator=generator, dtype=torch.float64)
    observed = torch.rand(n_rows, n_features, generator=generator) < 0.8
    y = torch.where(observed, x, 0.0) @ torch.arange(1.0, n_features + 1, dtype=torch.float64)
    return Labelled(Incomplete(x, observed), y)


def run(settings=SETTINGS, *, seed=1, objective=None, validate=True, **arguments):
    """A small noisy regression from a fixed start; returns the module and the history."""
    data = labelled_rows(torch.Generator().manual_seed(0))
    module = Linear(3)
    history = fit_module(
        module,
        objective or NoisySquare(0.3),
        data[:80],
        generator=torch.Generator().manual_seed(seed),
        validation=data[80:] if validate else None,
        settings=settings,
        **arguments,
    )
    return module, history


def stop_after(n_epochs):
    def callback(progress):
        if progress.epoch == n_epochs:
            raise KeyboardInterrupt

    return callback


def test_a_mixture_finds_two_clusters_despite_missing_values(generator):
    side = torch.randint(2, (400, 1), generator=generator) * 4.0 - 2.0
    x = side + 0.3 * torch.randn(400, 4, generator=generator, dtype=torch.float64)
    batch = Incomplete(x, torch.rand(400, 4, generator=generator) < 0.6)
    model = DiagonalMixture(n_features=4, n_components=2).double()
    model.reset_parameters(batch, generator)
    settings = TrainingSettings(max_epochs=80, batch_size=100, learning_rate=0.05)

    fit_module(
        model,
        NegativeLogLikelihood(),
        batch[:300],
        generator=generator,
        validation=batch[300:],
        settings=settings,
    )

    np.testing.assert_allclose(model.loc.detach().sort(0).values, [[-2.0] * 4, [2.0] * 4], atol=0.15)
    np.testing.assert_allclose(model.scale.detach(), 0.3, atol=0.1)


def test_rows_with_labels_are_fitted_to_the_least_squares_solution(generator):
    data, module = labelled_rows(generator), Linear(3)
    settings = TrainingSettings(
        max_epochs=600, learning_rate=0.1, schedule="cosine", patience=600, compile=False
    )
    fit_module(module, NoisySquare(), data, generator=generator, settings=settings)
    np.testing.assert_allclose(module.weights.detach(), [1.0, 2.0, 3.0], atol=1e-6)


def test_the_eager_step_is_textbook_adam_with_decoupled_decay(generator):
    data, module = labelled_rows(generator), Linear(3)
    x, y = data.batch.filled(0.0).numpy(), data.y.numpy()
    weights, first, second = np.zeros(3), np.zeros(3), np.zeros(3)
    for step in range(1, 6):
        gradient = 2 * x.T @ (x @ weights - y) / len(y)
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        weights = weights * (1 - 0.1 * 0.01)
        weights -= 0.1 * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)

    settings = replace(SETTINGS, max_epochs=5, batch_size=1000, learning_rate=0.1, weight_decay=0.01)
    fit_module(module, NoisySquare(), data, generator=generator, settings=settings)

    np.testing.assert_allclose(module.weights.detach(), weights, rtol=EXACT)


def test_a_penalty_in_the_update_is_a_penalty_in_the_loss(generator):
    class Penalised(NoisySquare):
        def __call__(self, module, batch, noise):
            return super().__call__(module, batch, noise) + 0.5 * 0.3 * module.weights.square().sum()

    data = labelled_rows(generator)
    ours, theirs = Linear(3), Linear(3)
    inside = Optimiser(ours, NoisySquare(), penalties={"weights": 0.3})
    beside = Optimiser(theirs, Penalised())
    for _ in range(5):
        noise = NoisySquare().draw_noise(data, generator)
        inside.step(data, noise, 0.1)
        beside.step(data, noise, 0.1)
    np.testing.assert_allclose(ours.weights.detach(), theirs.weights.detach(), rtol=1e-9)
    with pytest.raises(ValueError, match=r"penalties of \['other'\], which are no parameters"):
        Optimiser(ours, NoisySquare(), penalties={"other": 1.0})
    with pytest.raises(ValueError, match="Penalties are not part of the compiled step"):
        Optimiser(ours, NoisySquare(), penalties={"weights": 1.0}, compiled=True)


@pytest.mark.parametrize("gradient_clip", [None, 0.5, 1e3])
def test_the_function_that_is_compiled_equals_the_eager_step(generator, gradient_clip):
    data = labelled_rows(generator)
    options = {"weight_decay": 0.01, "gradient_clip": gradient_clip}
    modules = Linear(3), Linear(3)
    eager, functional = (Optimiser(module, NoisySquare(), **options) for module in modules)
    update = functional_update(functional._loss_of(), **options)
    for _ in range(10):
        noise = NoisySquare(0.3).draw_noise(data, generator)
        rate = torch.tensor(0.1, dtype=torch.float64)
        parameters = [parameter.detach() for parameter in functional.parameters]
        loss = update(parameters, functional.moments, rate, data, noise)
        np.testing.assert_allclose(eager.step(data, noise, 0.1), loss, rtol=EXACT)
    np.testing.assert_allclose(modules[0].weights.detach(), modules[1].weights.detach(), rtol=EXACT)
    for one, other in zip(eager.state().values(), functional.state().values(), strict=True):
        np.testing.assert_allclose(one, other, rtol=EXACT)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
def test_a_compiled_run_agrees_with_an_eager_one():
    settings = replace(SETTINGS, gradient_clip=2.0, weight_decay=0.01, schedule="cosine")
    eager, expected = run(settings)
    compiled, history = run(replace(settings, compile=True))
    assert history.compiled
    assert not expected.compiled
    np.testing.assert_allclose(compiled.weights.detach(), eager.weights.detach(), rtol=1e-9)
    np.testing.assert_allclose(history.validation_loss, expected.validation_loss, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
def test_a_mixture_trains_as_one_compiled_graph(generator):
    x = torch.randn(90, 4, generator=generator, dtype=torch.float64)
    x[:, 2:] = torch.nn.functional.one_hot((x[:, 0] > 0).long(), 2)
    observed = torch.rand(90, 4, generator=generator) < 0.7
    observed[:, 3] = observed[:, 2]
    models = []
    for compiled in (False, True):
        model = DiagonalMixture(n_features=4, n_components=3, blocks=[(2, 4)]).double()
        model.reset_parameters(Incomplete(x, observed), torch.Generator().manual_seed(0))
        settings = replace(SETTINGS, compile=compiled)
        seeded = torch.Generator().manual_seed(1)
        data = Incomplete(x, observed)
        history = fit_module(model, NegativeLogLikelihood(), data, generator=seeded, settings=settings)
        assert history.compiled == compiled
        models.append(model)
    for one, other in zip(*(model.parameters() for model in models), strict=True):
        np.testing.assert_allclose(one.detach(), other.detach(), rtol=1e-8, atol=1e-10)


def test_long_runs_are_compiled_unless_a_time_limit_may_end_them(monkeypatch):
    monkeypatch.setattr(loop, "COMPILE_FROM_STEPS", 10)
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)
    settings = replace(SETTINGS, compile="auto")
    assert run(settings)[1].compiled
    with time_limit(3600.0):
        assert not run(settings)[1].compiled
    assert not run(replace(settings, max_epochs=1))[1].compiled


def test_without_a_compiler_training_warns_and_goes_on_eagerly(monkeypatch):
    def no_compiler(*arguments):
        raise torch._dynamo.exc.BackendCompilerFailed(lambda: None, RuntimeError("no C++ compiler"), None)

    monkeypatch.setattr(torch, "compile", lambda function, **options: no_compiler)
    with pytest.warns(HalfseenWarning, match="could not be compiled and runs eagerly"):
        module, history = run(replace(SETTINGS, compile=True))
    expected, _ = run()
    assert not history.compiled
    assert torch.equal(module.weights, expected.weights)


@pytest.mark.parametrize(("max_epochs", "compiled"), [(3999, False), (4000, True)])
def test_compiling_is_decided_by_the_planned_number_of_steps(monkeypatch, max_epochs, compiled):
    asked = []
    monkeypatch.setattr(torch, "compile", lambda function, **options: asked.append(options) or function)
    settings = replace(SETTINGS, max_epochs=max_epochs, compile="auto")  # 5 batches an epoch
    with pytest.raises(KeyboardInterrupt):
        run(settings, callback=stop_after(1))
    assert asked == [{"fullgraph": True, "dynamic": False}] * compiled


@pytest.mark.parametrize("interrupted_after", [1, 5])
def test_an_interrupted_run_resumes_to_bit_identical_results(tmp_path, interrupted_after):
    expected, expected_history = run()
    path = tmp_path / "run.safetensors"
    with pytest.raises(KeyboardInterrupt):
        run(checkpoint=path, callback=stop_after(interrupted_after))
    resumed = []
    module, history = run(checkpoint=path, callback=lambda progress: resumed.append(progress.epoch))

    assert resumed[0] == interrupted_after + 1
    assert history == expected_history
    assert torch.equal(module.weights, expected.weights)
    assert [file.name for file in tmp_path.iterdir()] == ["run.safetensors"]


def test_a_run_made_longer_equals_one_that_was_long_from_the_start(tmp_path):
    expected, expected_history = run(validate=False)
    path = tmp_path / "run.safetensors"
    for max_epochs in (4, 9, 12):
        module, history = run(replace(SETTINGS, max_epochs=max_epochs), validate=False, checkpoint=path)
    assert history == expected_history
    assert torch.equal(module.weights, expected.weights)


def test_an_interruption_within_an_epoch_resumes_from_the_end_of_the_last(tmp_path):
    path = tmp_path / "run.safetensors"
    interrupted = Poisoned(NoisySquare(0.3), at=(), interrupted_at=23)  # 5 + 2 evaluations in an epoch
    with pytest.raises(KeyboardInterrupt):
        run(checkpoint=path, objective=interrupted)
    resumed = []
    module, history = run(
        checkpoint=path,
        objective=Poisoned(NoisySquare(0.3), at=()),
        callback=lambda progress: resumed.append(progress.epoch),
    )
    expected, expected_history = run()
    assert resumed[0] == 4
    assert history == expected_history
    assert torch.equal(module.weights, expected.weights)


def test_a_finished_run_resumes_to_itself(tmp_path):
    settings = replace(SETTINGS, max_epochs=100, patience=3)
    path = tmp_path / "run.safetensors"
    (first, one), (second, other) = run(settings, checkpoint=path), run(settings, checkpoint=path)
    assert one == other
    assert one.stopped == "patience"
    assert torch.equal(first.weights, second.weights)


@pytest.mark.parametrize("interrupted_at", [10, 20], ids=["before the next good epoch", "after it"])
def test_a_run_that_backed_off_resumes_to_bit_identical_results(tmp_path, interrupted_at):
    path = tmp_path / "run.safetensors"
    with pytest.warns(HalfseenWarning, match="continues with the learning rate 0.025 instead of 0.05"):
        expected, expected_history = run(objective=Poisoned(NoisySquare(0.3), at=(8,)))
    poisoned = Poisoned(NoisySquare(0.3), at=(8,), interrupted_at=interrupted_at)
    with (
        pytest.warns(HalfseenWarning, match="the training loss was nan"),
        pytest.raises(KeyboardInterrupt),
    ):
        run(objective=poisoned, checkpoint=path)
    module, history = run(objective=Poisoned(NoisySquare(0.3), at=()), checkpoint=path)
    assert history == expected_history
    assert torch.equal(module.weights, expected.weights)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"settings": replace(SETTINGS, learning_rate=0.1)}, "learning_rate was 0.05 and is 0.1"),
        ({"objective": NoisySquare(0.4)}, r"objective was 'NoisySquare\(noise=0.3\)' and is"),
        ({"validate": False}, "validation rows was 21 and is 0"),
        ({"seed": 2}, "generator was"),
    ],
)
def test_the_checkpoint_of_another_run_is_refused(tmp_path, change, message):
    path = tmp_path / "run.safetensors"
    run(replace(SETTINGS, max_epochs=2), checkpoint=path)
    with pytest.raises(ModelFileError, match=f"checkpoint of another run: .*{message}"):
        run(**change, checkpoint=path)


def test_a_cosine_run_cannot_be_made_longer(tmp_path):
    path = tmp_path / "run.safetensors"
    run(replace(SETTINGS, schedule="cosine", max_epochs=2), checkpoint=path)
    with pytest.raises(ModelFileError, match="max_epochs was 2 and is 12"):
        run(replace(SETTINGS, schedule="cosine"), checkpoint=path)


def test_a_file_that_is_no_checkpoint_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("this is no model")
    with pytest.raises(ModelFileError, match=r"notes.txt is not a checkpoint or is damaged"):
        run(checkpoint=path)
    assert path.read_text() == "this is no model"


def test_a_checkpoint_is_one_safetensors_file_with_json_in_its_header(tmp_path):
    path = tmp_path / "run.safetensors"
    _, history = run(checkpoint=path)
    with safe_open(path, framework="pt") as file:
        header = json.loads(file.metadata()["halfseen"])
        names = set(file.keys())
    assert History.from_dict(header["history"]) == history
    assert {"module/weights", "best/weights", "optimiser/weights/exp_avg", "generator"} <= names


def test_a_failed_write_leaves_the_old_checkpoint_and_no_part(tmp_path, monkeypatch):
    path = tmp_path / "run.safetensors"
    run(replace(SETTINGS, max_epochs=2), checkpoint=path)
    before = path.read_bytes()

    def disk_full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", disk_full)
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", 0.0)
    with pytest.warns(
        HalfseenWarning, match=r"run.safetensors' cannot be written \(no space left on"
    ) as warned:
        module, _ = run(checkpoint=path)
    assert len(warned) == 1  # of twelve attempts
    assert torch.equal(module.weights, run()[0].weights)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_checkpoint_is_also_written_while_training_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", 0.0)
    path = tmp_path / "run.safetensors"
    seen = []
    run(checkpoint=path, callback=lambda progress: seen.append(path.exists()))
    assert seen == [False] + [True] * 11


@pytest.mark.parametrize("in_gradient", [False, True])
def test_a_value_that_is_not_finite_halves_the_learning_rate_with_a_warning(in_gradient):
    objective = Poisoned(NoisySquare(0.3), at=(8,), in_gradient=in_gradient)  # in the second epoch
    with pytest.warns(
        HalfseenWarning, match="In epoch 2 the training loss was nan"
    ):  # a step later, if in a gradient
        module, history = run(objective=objective)
    assert history.backoffs == (Backoff(1, 0.025, "the training loss was nan"),)
    assert history.learning_rate == (0.05,) + (0.025,) * 11
    assert module.weights.isfinite().all()


def test_a_gradient_that_is_not_finite_is_noticed_in_the_last_step_of_an_epoch():
    objective = Poisoned(NoisySquare(0.3), at=(4,), in_gradient=True)
    with pytest.warns(HalfseenWarning, match="In epoch 1 a gradient was not finite"):
        module, history = run(objective=objective, validate=False)
    assert history.backoffs == (Backoff(0, 0.025, "a gradient was not finite"),)
    assert module.weights.isfinite().all()


def test_a_validation_loss_that_is_not_finite_counts_too():
    with pytest.warns(HalfseenWarning, match="In epoch 1 the validation loss was inf"):
        _, history = run(objective=Poisoned(NoisySquare(0.3), at=(5,), value=math.inf))
    assert len(history.backoffs) == 1


def test_backing_off_returns_to_the_weights_and_moments_of_the_last_good_epoch():
    seen = []

    @dataclass(frozen=True)
    class Watching(NoisySquare):
        def __call__(self, module, rows, noise):
            seen.append(module.weights.detach().clone())
            return super().__call__(module, rows, noise)

    with pytest.warns(HalfseenWarning):
        run(objective=Poisoned(Watching(0.3), at=(8,)))
    assert torch.equal(
        seen[9], seen[7]
    )  # 7: the first of epoch 2; 8: the poisoned; 9: the first of epoch 2 again
    assert not torch.equal(seen[8], seen[7])


def test_training_gives_up_after_max_backoffs_and_keeps_the_best_weights():
    expected, _ = run(replace(SETTINGS, max_epochs=1))
    data, module = labelled_rows(torch.Generator().manual_seed(0)), Linear(3)
    objective = Poisoned(NoisySquare(0.3), at=tuple(range(7, 1000)))
    settings = replace(SETTINGS, max_backoffs=2)
    message = (
        r"In epoch 2 the training loss was nan, although the learning rate was halved to 0.0125\. Check the"
    )
    with pytest.warns(HalfseenWarning), pytest.raises(TrainingError, match=message):
        fit_module(
            module,
            objective,
            data[:80],
            generator=torch.Generator().manual_seed(1),
            validation=data[80:],
            settings=settings,
        )
    assert torch.equal(module.weights, expected.weights)


def test_patience_stops_training_and_the_best_epoch_is_restored():
    module, history = run(replace(SETTINGS, max_epochs=200, patience=5, learning_rate=0.5))
    best = history.validation_loss[history.best_epoch]
    assert history.stopped == "patience"
    assert best == min(history.validation_loss)
    assert len(history.validation_loss) - 1 > history.best_epoch

    data, generator = labelled_rows(torch.Generator().manual_seed(0)), torch.Generator().manual_seed(1)
    objective = NoisySquare(0.3)
    parts = [data[80:96], data[96:]]
    noises = [objective.draw_noise(part, generator) for part in parts]  # the first numbers of the generator
    losses = [objective(module, part, noise) for part, noise in zip(parts, noises, strict=True)]
    np.testing.assert_allclose(torch.cat(losses).mean().item(), best, rtol=EXACT)
    assert not module.training


@dataclass(frozen=True)
class DistanceTo:
    """A criterion that has nothing to do with the loss: how far the first weight is from a number."""

    goal: float

    def __call__(self, module, rows):
        assert len(rows) == 21
        assert not module.training
        return abs(float(module.weights[0].detach()) - self.goal)


def test_a_criterion_judges_the_held_out_rows_in_place_of_the_loss(tmp_path):
    path = tmp_path / "run.safetensors"
    module, history = run(criterion=DistanceTo(0.2), checkpoint=path)
    assert history.validation_loss[history.best_epoch] == abs(float(module.weights[0].detach()) - 0.2)
    assert history.best_epoch < len(history.validation_loss) - 1
    with pytest.raises(ModelFileError, match=r"checkpoint of another run: .*criterion was"):
        run(criterion=DistanceTo(0.3), checkpoint=path)


def test_without_held_out_rows_a_plateau_of_the_training_loss_stops():
    settings = replace(SETTINGS, max_epochs=2000, patience=10, learning_rate=0.1)
    _, history = run(settings, objective=NoisySquare(), validate=False)
    assert history.stopped == "patience"
    assert history.validation_loss == ()
    assert history.train_loss[history.best_epoch] == min(history.train_loss) < 1e-2


def test_an_interruption_is_raised_and_not_taken_for_an_end_of_training():
    with pytest.raises(KeyboardInterrupt):
        run(callback=stop_after(9))


def test_batches_of_an_epoch_have_one_size_and_few_rows_sit_out():
    seen = []

    class Watching(NoisySquare):
        def __call__(self, module, rows, noise):
            seen.append(rows.y.tolist())
            return super().__call__(module, rows, noise)

    data = labelled_rows(torch.Generator().manual_seed(0), n_rows=103)
    settings = replace(SETTINGS, max_epochs=3, batch_size=25)
    fit_module(Linear(3), Watching(), data, generator=torch.Generator().manual_seed(0), settings=settings)

    assert {len(batch) for batch in seen} == {20}
    epochs = [[y for batch in seen[start : start + 5] for y in batch] for start in (0, 5, 10)]
    everything = set(data.y.tolist())
    assert all(len(set(epoch)) == 100 and set(epoch) <= everything for epoch in epochs)
    assert epochs[0] != epochs[1]
    assert everything - set(epochs[0]) != everything - set(epochs[1])


def test_progress_is_reported_after_each_epoch_and_nothing_is_printed(capsys):
    told = []
    _, history = run(callback=told.append)
    assert [progress.epoch for progress in told] == list(range(1, 13))
    assert tuple(progress.train_loss for progress in told) == history.train_loss
    assert tuple(progress.validation_loss for progress in told) == history.validation_loss
    assert told[-1].best_loss == min(history.validation_loss)
    assert capsys.readouterr() == ("", "")


def test_a_history_survives_json():
    with pytest.warns(HalfseenWarning):
        _, history = run(objective=Poisoned(NoisySquare(0.3), at=(8,)))
    copy = History.from_dict(json.loads(json.dumps(history.to_dict())))
    assert copy == history
    assert copy.seconds == history.seconds


def test_the_cosine_falls_from_the_learning_rate_to_zero():
    _, history = run(replace(SETTINGS, schedule="cosine"))
    expected = 0.05 * 0.5 * (1 + np.cos(np.pi * np.arange(12) / 12))
    np.testing.assert_allclose(history.learning_rate, expected, rtol=EXACT)


def test_other_schedules_change_the_rate_in_the_last_fifth_of_the_steps():
    _, history = run(replace(SETTINGS, schedule="linear"))
    expected = 0.05 * np.minimum(1, (1 - np.arange(12) / 12) / 0.2)
    np.testing.assert_allclose(history.learning_rate, expected, rtol=1e-12)
    _, history = run(replace(SETTINGS, schedule="step"))
    np.testing.assert_allclose(history.learning_rate, 0.05 * np.where(np.arange(12) < 9.6, 1, 0.1))


def test_the_same_seed_gives_the_same_run_and_another_seed_another():
    (one, _), (same, _), (other, _) = run(), run(), run(seed=2)
    assert torch.equal(one.weights, same.weights)
    assert not torch.equal(one.weights, other.weights)


def test_no_epochs_leave_the_module_as_it_was():
    module, history = run(replace(SETTINGS, max_epochs=0))
    assert torch.equal(module.weights, torch.zeros(3, dtype=torch.float64))
    assert history == History()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_epochs": -1}, "max_epochs must be at least 0, got -1"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"weight_decay": math.nan}, "weight_decay must be at least 0, got nan"),
        ({"learning_rate": 0.0}, "learning_rate must be positive and finite, got 0.0"),
        ({"gradient_clip": math.inf}, "gradient_clip must be positive and finite, got inf"),
        ({"schedule": "half"}, "schedule must be one of constant, cosine, linear, step, got 'half'"),
        ({"compile": "yes"}, "compile must be True, False or 'auto', got 'yes'"),
    ],
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        TrainingSettings(**settings)


def test_rows_and_parameters_are_required(generator):
    data = labelled_rows(generator)
    with pytest.raises(ValueError, match="train has no rows"):
        fit_module(Linear(3), NoisySquare(), data[:0], generator=generator)
    with pytest.raises(ValueError, match="validation has no rows"):
        fit_module(Linear(3), NoisySquare(), data, generator=generator, validation=data[:0])
    with pytest.raises(ValueError, match="module has no parameters to train"):
        fit_module(nn.Identity(), NoisySquare(), data, generator=generator)
