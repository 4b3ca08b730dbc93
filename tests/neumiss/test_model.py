"""The networks of a NeuMiss model answer for some rows at a time."""

import torch

from halfseen import config
from halfseen.data.incomplete import PIECE_BYTES
from halfseen.neumiss.model import Correction, EnsembleMLP, HeadInputs, NormalScores


def test_networks_answer_in_pieces_that_do_not_depend_on_the_budget(generator, monkeypatch):
    inputs = torch.randn(20_000, 3, generator=generator)
    nothing = torch.zeros(20_000, 1, dtype=torch.float64)
    head = HeadInputs(inputs, nothing, nothing)
    network = EnsembleMLP(4, 5, 1, width=64)
    correction = Correction(network, NormalScores.fit(inputs[:, :2]))
    first, sizes = correction(head), []
    forward = EnsembleMLP.forward
    monkeypatch.setattr(EnsembleMLP, "forward", lambda self, x: sizes.append(len(x)) or forward(self, x))
    with config.context(memory_budget="16 MiB"):
        again = correction(head)
    assert sum(sizes) == 20_000
    assert max(sizes) * 4 * 64 * 4 <= PIECE_BYTES / 8  # a layer of four networks, beside others like it
    assert len(sizes) > 1
    assert torch.equal(again, first)
