"""The experiment on the number of latents of images: what its models are, and that they run."""

import pytest
from torch import nn

from halfseen.nn.residual import ResidualMLP
from papers import EXPERIMENTS, run
from papers.missvae import images
from papers.missvae.latent_sizes import EXPERIMENT, FEW, MANY, METHODS, MNIST, PLANS, make_task


def models(scale):
    return {cell.model: EXPERIMENT.models[cell.model]() for cell in EXPERIMENT.cells(scale)}


def test_models_have_the_latents_and_the_method_of_their_names():
    for name, model in models("paper").items():
        method, latents = name.split(", ")
        assert (METHODS[method], latents) == (model.method, f"{model.n_latent} latents")
    assert len(models("paper")) == 3 * len(METHODS) == 21
    assert {model.n_latent for model in models("small").values()} == {FEW, MANY}
    assert METHODS["DeMissVAE"].imputer == "pseudo-gibbs"


@pytest.mark.parametrize("n_latent", [FEW, MANY])
def test_networks_are_convolutional_at_the_scale_of_the_paper_alone(n_latent):
    kinds = []
    for plan in (PLANS["small"], images.PLANS["paper", MNIST]):
        built = images.build(METHODS["MIWAE"], plan, n_latent)
        assert (built.n_latent, built.n_components) == (n_latent, 1)
        kinds.append(
            (isinstance(built.encoder, ResidualMLP), any(isinstance(m, nn.Conv2d) for m in built.modules()))
        )
    assert kinds == [(True, False), (False, True)]


def test_claims_compare_the_fewest_latents_with_the_most():
    for claim in EXPERIMENT.claims:
        compared = {claim.model.split(", ")[1], claim.other.split(", ")[1]}
        assert compared == {f"{FEW} latents", f"{MANY} latents"}


@pytest.mark.slow
def test_every_method_runs(tmp_path, shared_data):
    assert EXPERIMENTS["missvae-latents"] is EXPERIMENT
    results = run(EXPERIMENT, "smoke", tmp_path)
    assert [cell.error for cell in results.cells] == [None] * len(METHODS)
    assert len(make_task({"plan": "smoke", "data": MNIST}, 0).train) == PLANS["smoke"].n_train
