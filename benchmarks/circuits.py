"""A training step of the circuit over digits (HT, 1.6 million weights) beside what its arithmetic must take.

The bound is the time of the matrix products of forward and backward pass at these sizes, measured one by
one, plus the time of the exponentials and logarithms of all messages. Then the step is timed with the
gradient of a sum written out, as the library has it, and with the one that autograd derives. CPU seconds are
reported, which depend little on how busy the machine is; all numbers are medians. Prediction is of images of
which a quarter is missing, in double precision as `ConvACClassifier` does it, without shifts. The memory of a
step is how much the peak of the process grows with the first step. Stores nothing. Run with
`python benchmarks/circuits.py`; `--quick` takes fewer repetitions, `--compile` times a compiled step as well.
"""

import resource
import sys
import time
from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor

from halfseen.data.incomplete import Incomplete
from halfseen.distributions.leaves import GaussianLeaf
from halfseen.distributions.observation import Observation, Part
from halfseen.models.circuits import layers
from halfseen.models.circuits.circuit import Circuit
from halfseen.models.circuits.initialisation import random_weights
from halfseen.models.circuits.structure import Structure
from halfseen.objectives.circuits import HybridLikelihood
from halfseen.objectives.supervised import Labelled
from halfseen.training.step import Optimiser

BATCH = 128


class Derived:
    """The sum layer's arithmetic with the gradient that autograd derives."""

    @staticmethod
    def apply(x: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, None, None]:
        """Returns what `LogMatmulExp` returns, as far as it is used."""
        shift = x.detach().amax(dim=-1, keepdim=True)
        return torch.bmm((x - shift).exp(), weights).log(), shift.squeeze(-1), None, None


def cpu_seconds(task: Callable[[], object], repetitions: int) -> float:
    """Median CPU seconds of a task, after one that is not counted."""
    task()
    times = []
    for _ in range(repetitions):
        began = time.process_time()
        task()
        times.append(time.process_time() - began)
    return median(times)


def digits() -> tuple[Circuit, Labelled[Incomplete]]:
    """The network of the paper with random weights, and a batch of random images."""
    generator = torch.Generator().manual_seed(0)
    structure = Structure.image((28, 28), 32, [64, 128, 256, 512], n_classes=10)
    circuit = Circuit(structure, Observation([Part(GaussianLeaf(4), range(4), range(4))])).float()
    random_weights(circuit, generator)
    with torch.no_grad():
        circuit.leaves.theta[:, :4] = torch.randn(32, 4, generator=generator)
    circuit.leaves.requires_grad_(False)
    x = torch.randn(BATCH, 784, generator=generator)
    observed = torch.rand(x.shape, generator=generator) < 0.75
    return circuit, Labelled(Incomplete(x, observed), torch.arange(BATCH) % 10, torch.ones(BATCH))


def bounds(circuit: Circuit, repetitions: int) -> tuple[float, float]:
    """CPU seconds of all matrix products of a step, and of all exponentials and logarithms."""
    products = elementwise = 0.0
    regions = [level.n_regions for level in circuit.structure.levels] + [1]
    for n_regions, layer in zip(regions, (*circuit.sums, circuit.root), strict=True):
        n_sets, n_inputs, n_outputs = layer.logits.shape
        x = torch.rand(n_sets, n_regions // n_sets * BATCH, n_inputs)
        weights, gradient = torch.rand(n_sets, n_inputs, n_outputs), torch.rand(*x.shape[:2], n_outputs)
        for left, right in ((x, weights), (gradient, weights.mT), (x.mT, gradient)):
            products += cpu_seconds(lambda a=left, b=right: torch.bmm(a, b), repetitions)
        elementwise += cpu_seconds(lambda a=x: a.exp(), repetitions)
        elementwise += cpu_seconds(lambda a=gradient: a.log(), repetitions)
    return products, elementwise


def peak_mib() -> float:
    """The greatest memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def step_mib() -> float:
    """How much the peak grows with the first step, moments of the optimiser included."""
    circuit, batch = digits()
    before = peak_mib()
    Optimiser(circuit, HybridLikelihood(8.0, torch.arange(784))).step(batch, (), 1e-3)
    return peak_mib() - before


def step_seconds(repetitions: int, *, compiled: bool = False) -> float:
    """CPU seconds of a whole training step: loss, gradient and update."""
    circuit, batch = digits()
    objective = HybridLikelihood(8.0, torch.arange(784))
    optimiser: Optimiser = Optimiser(circuit, objective, compiled=compiled)
    return cpu_seconds(lambda: optimiser.step(batch, (), 1e-3), repetitions)


def main() -> None:
    """Prints all numbers."""
    repetitions = 5 if "--quick" in sys.argv else 30
    memory = step_mib()
    circuit, batch = digits()
    products, elementwise = bounds(circuit, repetitions)
    written_out = step_seconds(repetitions)
    kept = layers.LogMatmulExp
    layers.LogMatmulExp = Derived
    derived = step_seconds(repetitions)
    layers.LogMatmulExp = kept
    circuit.double()
    rows = batch.rows.to(torch.float64)
    with torch.no_grad():
        prediction = cpu_seconds(lambda: circuit.class_probabilities(rows), repetitions)
    bound = products + elementwise
    print(f"threads {torch.get_num_threads()}, batch {BATCH}, CPU milliseconds")
    print(f"matrix products {1e3 * products:.1f}, exponentials and logarithms {1e3 * elementwise:.1f}")
    print(f"step, gradient written out {1e3 * written_out:.1f} = {written_out / bound:.2f} times the bound")
    print(f"step, gradient derived {1e3 * derived:.1f} = {derived / bound:.2f} times the bound")
    if "--compile" in sys.argv:
        compiled = step_seconds(repetitions, compiled=True)
        print(f"step, compiled {1e3 * compiled:.1f} = {compiled / bound:.2f} times the bound")
    print(f"memory of a step {memory:.0f} MiB")
    print(f"prediction of 10,000 images {1e4 / BATCH * prediction:.1f} s")


if __name__ == "__main__":
    main()
