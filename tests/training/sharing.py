"""Trains models by several processes, each of which runs this script, and saves what each of them found."""

import os
import sys

import numpy as np
import torch
from torch import nn

import halfseen
from halfseen.data.incomplete import Incomplete
from halfseen.training.gradients import data_parallel
from halfseen.training.loop import TrainingSettings, fit_module
from halfseen.training.step import Optimiser

N, D = 250, 3


class NoisyError:
    """The squared error of a constant, predicted from values and noise."""

    def draw_noise(self, batch, generator):
        """Returns noise for each row."""
        return (torch.randn(len(batch), D, generator=generator, dtype=torch.float64),)

    def __call__(self, module, batch, noise):
        """Returns the error of each row."""
        return (module(batch.filled() + noise[0]) - 1.0).square().sum(dim=1)


def train(n_pieces=8):
    """Returns the gradients of each step of a training, the losses, and the model of an estimator."""
    gradients = []
    usual = Optimiser._apply_gradients

    def remember(self, rate):
        gradients.append([parameter.grad.clone() for parameter in self.parameters])
        usual(self, rate)

    Optimiser._apply_gradients = remember
    try:
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(N, D, generator=generator, dtype=torch.float64)
        rows = Incomplete(x, torch.rand(N, D, generator=generator) < 0.8)
        first, last = (nn.utils.skip_init(nn.Linear, *sizes) for sizes in ((D, 8), (8, 2)))
        module = nn.Sequential(first, nn.Tanh(), last).double()
        for parameter in module.parameters():
            parameter.data.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
        settings = TrainingSettings(max_epochs=4, batch_size=60, learning_rate=0.01, gradient_clip=5.0)
        with data_parallel(n_pieces):
            history = fit_module(module, NoisyError(), rows, generator=generator, settings=settings)
            table = np.where(rows.observed.numpy(), x.numpy(), np.nan)
            imputer = halfseen.MixtureImputer(max_epochs=3, random_state=0).fit(table)
    finally:
        Optimiser._apply_gradients = usual
    return {"gradients": gradients, "loss": history.train_loss, "filled": imputer.transform(table)}


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    torch.save(train(), f"{sys.argv[1]}.{os.environ['RANK']}")
    torch.distributed.destroy_process_group()
