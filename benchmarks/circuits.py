"""What circuits cost: a training step over digits beside what its arithmetic must take, predictions, a fit.

The step is that of the paper's network for digits (HT, 1.6 million weights) on 128 images. Its bound is the
time of the matrix products of forward and backward pass at these sizes, measured one by one, plus the time of
the exponentials and logarithms of all messages. The step is timed with the gradient of a sum that autograd
derives, as the library has it, by turns with one that is written out, and compiled; then the same structure
in SPFlow 1.1, with its own convolutional layers and sums, with loss, gradient and update, if it is installed
(extra `peers`; its leaves are not shared, so it has a little more to compute). The memory of a step is how
much the peak of the process grows with the first step. Predictions are those of `ConvACClassifier` for 10,000
images of which a quarter of the pixels is missing, in double precision, without shifts. The fit is that of
`CircuitImputer` with its defaults to the table california with 30% of its cells hidden at random, if the
table is there.

Steps are in milliseconds of processor time with one thread, which depends little on how busy the machine is,
and all are medians, those of SPFlow of two steps. Predictions and the fit are in seconds of the clock and of
processor time, by which they are judged. Limits that are not kept are named. Writes results/circuits.json.
Run with `make bench`; `--quick` takes fewer repetitions and images, compiles and fits nothing, and stores
nothing.
"""

import importlib.util
import os
import resource
import sys
import time
from typing import Any

import numpy as np
import torch
from harness import clock, cpu_milliseconds, find_commit, print_results, store
from torch import Tensor

from halfseen.circuits import layers
from halfseen.circuits.circuit import Circuit
from halfseen.circuits.convac import ConvACClassifier
from halfseen.circuits.imputer import CircuitImputer
from halfseen.circuits.initialisation import random_weights
from halfseen.circuits.objectives import HybridLikelihood
from halfseen.circuits.structure import Structure
from halfseen.data.incomplete import Incomplete
from halfseen.datasets.loaders import describe_dataset, is_present, load
from halfseen.distributions.leaves import GaussianLeaf
from halfseen.distributions.observation_model import ObservationModel, Part
from halfseen.training.step import Optimiser
from halfseen.training.supervised import Labelled

BATCH, N_IMAGES, CHANNELS = 128, 10_000, (64, 128, 256, 512)
BETA = 8.0
RATE, TABLE = 0.3, "california_housing"
LIMITS = {
    "step / bound": 3.0,
    "memory of a step, MiB": 1024.0,
    "predictions, CPU seconds": 10.0,
    "fit of CircuitImputer, CPU seconds": 60.0,
    "step / step of SPFlow": 0.2,
}


class WrittenOut(torch.autograd.Function):
    """The sum layer's arithmetic with its gradient written out."""

    @staticmethod
    def forward(x: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Returns the result, the shift, and what the gradient needs."""
        shift = x.amax(dim=-1, keepdim=True)
        scaled = (x - shift).exp_()
        total = torch.bmm(scaled, weights)
        return total.log(), shift.squeeze(-1), scaled, total

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        """Keeps the exponentials, the weights and the sums."""
        _, shift, scaled, total = output
        ctx.mark_non_differentiable(shift, scaled, total)
        ctx.set_materialize_grads(False)  # no zeros for the outputs without a gradient
        ctx.save_for_backward(scaled, inputs[1], total)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Returns the gradients of the inputs and the weights."""
        scaled, weights, total = ctx.saved_tensors
        ratio = gradients[0] / total
        of_x = torch.bmm(ratio, weights.mT).mul_(scaled) if ctx.needs_input_grad[0] else None
        of_weights = torch.bmm(scaled.mT, ratio) if ctx.needs_input_grad[1] else None
        return of_x, of_weights


def digits() -> tuple[Circuit, Labelled[Incomplete]]:
    """The network of the paper with random weights, and a batch of random images."""
    generator = torch.Generator().manual_seed(0)
    structure = Structure.image((28, 28), 32, CHANNELS, n_classes=10)
    circuit = Circuit(structure, ObservationModel([Part(GaussianLeaf(4), range(4), range(4))])).float()
    random_weights(circuit, generator)
    with torch.no_grad():
        circuit.leaves.theta[:, :4] = torch.randn(32, 4, generator=generator)
    circuit.leaves.requires_grad_(False)
    x = torch.randn(BATCH, 784, generator=generator)
    observed = torch.rand(x.shape, generator=generator) < 0.75
    return circuit, Labelled(Incomplete(x, observed), torch.arange(BATCH) % 10, torch.ones(BATCH))


def bounds(repetitions: int) -> tuple[float, float]:
    """CPU milliseconds of all matrix products of a step, and of all exponentials and logarithms."""
    circuit, _ = digits()
    products = elementwise = 0.0
    regions = [level.n_regions for level in circuit.structure.levels] + [1]
    for n_regions, layer in zip(regions, (*circuit.sums, circuit.root), strict=True):
        n_sets, n_inputs, n_outputs = layer.logits.shape
        x = torch.rand(n_sets, n_regions // n_sets * BATCH, n_inputs)
        weights, gradient = torch.rand(n_sets, n_inputs, n_outputs), torch.rand(*x.shape[:2], n_outputs)
        for left, right in ((x, weights), (gradient, weights.mT), (x.mT, gradient)):
            products += cpu_milliseconds(lambda a=left, b=right: torch.bmm(a, b), repetitions)
        elementwise += cpu_milliseconds(lambda a=x: a.exp(), repetitions)
        elementwise += cpu_milliseconds(lambda a=gradient: a.log(), repetitions)
    return products, elementwise


def peak_mib() -> float:
    """The greatest memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def step_mib() -> float:
    """How much the peak grows with the first step, moments of the optimiser included."""
    circuit, batch = digits()
    before = peak_mib()
    Optimiser(circuit, HybridLikelihood(BETA, torch.arange(784))).step(batch, (), 1e-3)
    return peak_mib() - before


def compiled_milliseconds(repetitions: int) -> float:
    """CPU milliseconds of a whole training step that is compiled: loss, gradient and update."""
    circuit, batch = digits()
    objective = HybridLikelihood(BETA, torch.arange(784))
    optimiser: Optimiser = Optimiser(circuit, objective, compiled=True)
    return cpu_milliseconds(lambda: optimiser.step(batch, (), 1e-3), repetitions)


def both_milliseconds(repetitions: int) -> tuple[float, float]:
    """CPU milliseconds of a step with the derived gradient and with the one written out, by turns."""
    objective = HybridLikelihood(BETA, torch.arange(784))
    kept = layers.log_matmul_exp
    forms = (kept, lambda x, weights: WrittenOut.apply(x, weights)[:2])
    trained: list[tuple[Optimiser, Labelled[Incomplete]]] = []
    for circuit, batch in (digits(), digits()):
        trained.append((Optimiser(circuit, objective), batch))
    times: tuple[list[float], list[float]] = ([], [])
    try:
        for _ in range(repetitions):
            for form, (optimiser, batch), seconds in zip(forms, trained, times, strict=True):
                layers.log_matmul_exp = form
                began = time.process_time()
                optimiser.step(batch, (), 1e-3)
                seconds.append(time.process_time() - began)
    finally:
        layers.log_matmul_exp = kept
    derived, written = (1000 * float(np.median(seconds)) for seconds in times)
    return derived, written


def spflow_milliseconds(repetitions: int) -> float | None:
    """CPU milliseconds of a step of the same structure in SPFlow; None if it is not installed."""
    if importlib.util.find_spec("spflow") is None:
        return None
    from spflow.modules.conv import ProdConv, SumConv
    from spflow.modules.leaves import Normal
    from spflow.modules.sums import Sum

    patches = ProdConv(Normal(scope=list(range(784)), out_channels=32), 2, 2, 2, 2)  # two pixels around
    network: Any = SumConv(patches, CHANNELS[0], kernel_size=2)
    for channels in (*CHANNELS[1:], 10):
        network = Sum(ProdConv(network, 2, 2), out_channels=channels)
    _, batch = digits()
    x = torch.where(batch.rows.observed, batch.rows.x, torch.nan)
    optimiser = torch.optim.AdamW(network.parameters(), lr=1e-3)

    def step() -> None:
        optimiser.zero_grad()
        scores = network.log_likelihood(x)[:, 0, :, 0]  # (N, classes)
        of_class = torch.nn.functional.cross_entropy(scores, batch.target)
        (of_class - BETA / 784 * scores.logsumexp(dim=-1).mean()).backward()
        optimiser.step()

    return cpu_milliseconds(step, repetitions)


def time_predictions(n_images: int) -> dict[str, float]:
    """Seconds that the public classifier takes for masked images; its weights are random."""
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, size=(n_images, 28, 28)).astype(float)
    model = ConvACClassifier(max_epochs=0, random_state=0).fit(images[:200], np.arange(200) % 10)
    images[generator.random(images.shape) < 0.25] = np.nan
    return clock(lambda: model.predict_proba(images))


def time_fit() -> dict[str, float] | None:
    """Seconds of a fit of the imputer; None if the table is not there."""
    if not is_present(describe_dataset(TABLE)):
        return None
    table = load(TABLE)
    holes = table.mask(np.random.default_rng(0).random(table.shape) < RATE)
    return clock(lambda: CircuitImputer(random_state=0).fit(holes))


def main() -> None:
    """Measures everything, prints it, and stores it unless it was quick."""
    quick = "--quick" in sys.argv
    repetitions, n_threads = 5 if quick else 20, torch.get_num_threads()
    torch.set_num_threads(1)
    memory = step_mib()
    products, elementwise = bounds(repetitions)
    derived, written = both_milliseconds(repetitions)
    steps = {
        "matrix products": products,
        "exponentials and logarithms": elementwise,
        "gradient derived": derived,
        "gradient written out": written,
        "compiled": None if quick else compiled_milliseconds(repetitions),
        "SPFlow": None if quick else spflow_milliseconds(2),
    }
    torch.set_num_threads(n_threads)
    predictions = time_predictions(500 if quick else N_IMAGES)
    fit = None if quick else time_fit()
    step = derived
    judged = {
        "step / bound": step / (products + elementwise),
        "memory of a step, MiB": memory,
        "predictions, CPU seconds": predictions["cpu_seconds"],
    }
    judged |= {} if fit is None else {"fit of CircuitImputer, CPU seconds": fit["cpu_seconds"]}
    judged |= {} if steps["SPFlow"] is None else {"step / step of SPFlow": step / steps["SPFlow"]}
    results = {
        "commit": find_commit(),
        "processors": os.cpu_count(),
        "a training step on 128 images, CPU milliseconds": steps,
        f"predictions for {N_IMAGES:,} images": predictions,
        "fit of CircuitImputer to california": fit,
        "judged": judged,
        "limits": LIMITS,
    }
    print_results(results)
    if not quick:
        store("circuits", results)


if __name__ == "__main__":
    main()
