"""What an experiment needs is known before it runs."""

import pytest

from halfseen.datasets import loaders
from papers import EXPERIMENTS, amputed_table
from papers.circuits import digit_pairs as convac
from papers.circuits import figure3 as convac_figure3
from papers.circuits import mnist as convac_mnist
from papers.circuits import tables as circuit_classifier
from papers.missvae import images as missvae_images
from papers.missvae import tables as missvae_tables
from papers.notmiwae import disc as notmiwae_disc
from papers.notmiwae import report as notmiwae_report
from papers.notmiwae import tables as notmiwae
from papers.sparsity import cells as sparsity_cells
from papers.sparsity import dropout as sparsity_dropout
from papers.sparsity import made as sparsity_made
from papers.sparsity import ratings as sparsity

LOADING = {
    "auto": amputed_table,
    "tables": amputed_table,
    "notmiwae": notmiwae,
    "notmiwae-toys": notmiwae_disc,
    "notmiwae-report": notmiwae_report,
    "missvae-tables": missvae_tables,
    "missvae-images": missvae_images,
    "missvae-causes": missvae_images,
    "missvae-latents": missvae_images,
    "convac": convac,
    "circuit-classifier": circuit_classifier,
    "convac-mnist": convac_mnist,
    "convac-figure3": convac_figure3,
    "convac-figure4": convac_figure3,
    "sparsity": sparsity,
    "sparsity-optimisers": sparsity,
    "sparsity-tuned": sparsity,
    "sparsity-units": sparsity,
    "sparsity-series": loaders,
    "sparsity-made": sparsity_made,
    "sparsity-dropout": sparsity_dropout,
    "sparsity-cells": sparsity_cells,
}


@pytest.mark.parametrize("name", LOADING)
def test_an_experiment_declares_every_data_set_that_it_loads(name, monkeypatch):
    class Asked(Exception):
        """Raised in place of loading."""

    def load(wanted, **settings):
        raise Asked(wanted)

    monkeypatch.setattr(LOADING[name], "load", load)
    experiment = EXPERIMENTS[name]
    for setting in {str(cell.setting): cell.setting for cell in experiment.cells("paper")}.values():
        declared = experiment.data_sets(setting)
        if declared:
            with pytest.raises(Asked, match=declared[0]):
                experiment.make_data(setting, 0)
        else:
            experiment.make_data(setting, 0)


def test_other_experiments_need_no_files():
    for name in set(EXPERIMENTS) - set(LOADING):
        experiment = EXPERIMENTS[name]
        assert {experiment.data_sets(cell.setting) for cell in experiment.cells("paper")} == {()}
