"""The decomposed objective against closed forms, and against its two bounds taken one by one."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from oracles import linear_gaussian as oracle
from scipy import stats
from tolerances import EXACT, FAILURE_RATE, QUADRATURE
from torch.distributions import Categorical, MixtureSameFamily, Normal

from halfseen.data.incomplete import Incomplete
from halfseen.distributions.leaves import SharedGaussianLeaf
from halfseen.distributions.leaves_counts import CategoricalLeaf
from halfseen.distributions.observation_model import ObservationModel, Part
from halfseen.latent.completions import CompletedRows, Completions, Limits, posterior_of
from halfseen.latent.decomposed import VARIANTS, DecomposedObjective
from halfseen.latent.model import LatentModel, LatentNoise
from halfseen.nn.residual import ResidualMLP
from halfseen.training.loop import TrainingSettings, fit_module

N_COMPLETIONS = 3


def linear_rows(generator, n_rows=6, rate=0.5, n_completions=N_COMPLETIONS, **flags):
    x = torch.randn(n_rows, oracle.N_FEATURES, generator=generator, dtype=torch.float64)
    batch = Incomplete(x, torch.rand(x.shape, generator=generator) >= rate)
    observation = ObservationModel.for_pixels(oracle.N_FEATURES, "gaussian")
    completions = Completions.start(batch, observation, n_completions, generator)
    return CompletedRows.of(batch, completions, **flags)


def mixed_model(generator):
    """Two numbers of one learned scale, and a block of three levels; networks with a hidden layer."""
    observation = ObservationModel(
        [Part(SharedGaussianLeaf(2), [0, 2], [0, 4]), Part(CategoricalLeaf([3]), [1], [1, 2, 3])]
    )
    sizes = {"n_blocks": 1, "width": 7, "activation": "tanh"}
    model = LatentModel(ResidualMLP(10, 4, **sizes), ResidualMLP(2, 5, **sizes), observation, 2).double()
    for network in (model.encoder, model.decoder):
        network.reset_parameters(generator)
    return model


def mixed_rows(generator, n_rows=8, rate=0.5, n_completions=N_COMPLETIONS, **flags):
    observation = mixed_model(generator).observation
    x = torch.randn(n_rows, 5, generator=generator, dtype=torch.float64)
    x[:, 1:4] = torch.nn.functional.one_hot(torch.randint(3, (n_rows,), generator=generator), 3)
    observed = (torch.rand(n_rows, 3, generator=generator) >= rate)[:, observation.columns_of_features]
    batch = Incomplete(torch.where(observed, x, math.nan), observed)
    return CompletedRows.of(batch, Completions.start(batch, observation, n_completions, generator), **flags)


def hermite(n_nodes=60):
    nodes, weights = np.polynomial.hermite_e.hermegauss(n_nodes)
    return torch.from_numpy(nodes), torch.from_numpy(weights / weights.sum())


def expectation(objective, model, rows, target):
    """Expected log weights (N, K) under each completion's own posterior, by quadrature over two latents."""
    nodes, weights = hermite()
    normals = torch.cartesian_prod(nodes, nodes)[:, None, None, :]
    shape = (-1, len(rows), rows.completions.n_completions, oracle.N_LATENT)
    found = objective.evaluate(model, rows, rows.completed, normals.expand(*shape))
    both = (weights[:, None] * weights).flatten()
    return torch.einsum("s,snk->nk", both, found.log_w[target].detach())


@torch.no_grad()
def mean_log_likelihood(model, batch):
    """By the sum over a grid of latents."""
    axis = torch.linspace(-5.0, 5.0, 61, dtype=torch.float64)
    z = torch.cartesian_prod(axis, axis).unsqueeze(1)  # (G, 1, L)
    terms = torch.where(batch.observed, model.observation.log_prob(model.decoder(z), batch.x), 0.0)
    log_joint = terms.sum(dim=-1) + Normal(0.0, 1.0).log_prob(z).sum(dim=-1)
    return (log_joint.logsumexp(dim=0) + 2 * (axis[1] - axis[0]).log()).mean().item()


def gradients(loss, module):
    module.zero_grad()
    loss.sum().backward()
    return {
        name: torch.zeros_like(p) if p.grad is None else p.grad.clone()
        for name, p in module.named_parameters()
    }


# ------------------------------------------------------------------------------------------- identities


def test_the_decoders_bound_is_the_likelihood_less_the_divergence_of_the_mixture(generator):
    model, rows = oracle.linear_gaussian(tilt=0.2, widen=1.3), linear_rows(generator)
    objective = DecomposedObjective.for_model(model)
    bound = expectation(objective, model, rows, "observed").mean(dim=1)

    posterior = posterior_of(model, rows.completed)
    loc, scale = (part.squeeze(-2).detach().numpy() for part in (posterior.loc, posterior.scale))
    axis = np.linspace(-9.0, 9.0, 601)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1)  # (G, G, L)
    for n, (row, observed) in enumerate(zip(rows.batch.x.numpy(), rows.batch.observed.numpy(), strict=True)):
        parts = [stats.norm.pdf(grid, loc[n, k], scale[n, k]).prod(axis=-1) for k in range(N_COMPLETIONS)]
        q = np.mean(parts, axis=0)
        exact = stats.multivariate_normal(*oracle.latent_conditional(row, observed))
        with np.errstate(divide="ignore", invalid="ignore"):
            integrand = np.where(q > 0, q * (np.log(q) - exact.logpdf(grid)), 0.0)
        divergence = integrand.sum() * (axis[1] - axis[0]) ** 2
        expected = oracle.log_prob(row, observed) - divergence
        assert bound[n].item() == pytest.approx(expected, abs=QUADRATURE)


def test_the_encoders_bound_is_the_likelihood_of_completions_less_the_divergence_of_each(generator):
    model, rows = oracle.linear_gaussian(tilt=0.2, widen=1.3), linear_rows(generator)
    bound = expectation(DecomposedObjective.for_model(model), model, rows, "completed")

    matrix, variance = oracle.posterior_moments()
    posterior, all_seen = posterior_of(model, rows.completed), np.ones(oracle.N_FEATURES, dtype=bool)
    loc, scale = (part.squeeze(-2).detach().numpy() for part in (posterior.loc, posterior.scale))
    gap = loc - (rows.completed.numpy() - oracle.BIAS) @ matrix.T
    ratio = scale**2 / variance
    divergence = 0.5 * (ratio - 1.0 - np.log(ratio) + gap**2 / variance).sum(axis=-1)
    log_p = [[oracle.log_prob(row, all_seen) for row in copies] for copies in rows.completed.numpy()]

    np.testing.assert_allclose(bound, np.array(log_p) - divergence, rtol=EXACT, atol=EXACT)


def test_the_loss_of_complete_rows_is_exact_if_the_posterior_is(generator):
    model, rows = oracle.linear_gaussian(), linear_rows(generator, rate=0.0)
    objective = DecomposedObjective.for_model(model, n_draws=2)
    loss = objective(model, rows, objective.draw_noise(rows, generator))

    seen = np.ones(oracle.N_FEATURES, dtype=bool)
    expected = [-oracle.log_prob(row, seen) for row in rows.batch.x.numpy()]
    np.testing.assert_allclose(loss.detach(), expected, rtol=EXACT)


def test_the_loss_is_a_bound_that_more_draws_tighten(generator):
    model, rows = oracle.linear_gaussian(tilt=0.2), linear_rows(generator, n_rows=1)
    row, observed = rows.batch.x[0].numpy(), rows.batch.observed[0].numpy()
    many = CompletedRows(rows.batch, rows.completions, rows.index, held_out=True)[torch.zeros(4000).long()]
    means = []
    for n_draws in (1, 50):
        objective = DecomposedObjective.for_model(model, n_draws=n_draws, n_rounds=0)
        with torch.no_grad():
            weights = (-objective(model, many, objective.draw_noise(many, generator))).exp().numpy()
        p_value = stats.ttest_1samp(weights, math.exp(oracle.log_prob(row, observed))).pvalue
        assert p_value > FAILURE_RATE  # the bound is the log of an unbiased estimate
        means.append(np.log(weights).mean())

    assert means[0] < means[1] < oracle.log_prob(row, observed) + 1e-3


# -------------------------------------------------------------------------------------------- gradients


def own_terms(model, rows, normals, k, target, gradient):
    """Log weights (S, N) of one completion by torch's distributions, with the latents' own gradient."""
    completed = rows.completed
    outputs = model.encoder(torch.cat([completed, torch.ones_like(completed)], dim=-1))
    loc, scale = outputs[..., :2], torch.nn.functional.softplus(outputs[..., 2:]) + 1e-5  # (N, K, L)
    z = loc[:, k] + scale[:, k] * normals[:, :, k]
    if gradient == "stl":
        loc, scale = loc.detach(), scale.detach()
    if target == "observed":
        parts = torch.distributions.Independent(Normal(loc, scale), 1)
        log_q = MixtureSameFamily(Categorical(logits=torch.zeros(loc.shape[:-1]).double()), parts).log_prob(z)
    else:
        log_q = Normal(loc[:, k], scale[:, k]).log_prob(z).sum(dim=-1)
    terms = model.observation.log_prob(model.decoder(z), completed[:, k])
    if target == "observed":
        terms = torch.where(model.observation.observed_columns(rows.batch.observed), terms, 0.0)
    return terms.sum(dim=-1) + Normal(0.0, 1.0).log_prob(z).sum(dim=-1) - log_q


def separate_bound(model, rows, normals, variant, of_decoder, gradient):
    """One of the two objectives by itself, written out."""
    target = {"cvi": "observed", "mvb": "completed"}.get(variant, "observed" if of_decoder else "completed")
    log_w = torch.stack(
        [own_terms(model, rows, normals, k, target, gradient) for k in range(N_COMPLETIONS)], dim=-1
    )
    if variant != "decomposed-iw":
        return log_w.mean(dim=(0, 2))
    if of_decoder:
        return log_w.exp().mean(dim=(0, 2)).log()
    return log_w.exp().mean(dim=0).log().mean(dim=-1)


@pytest.mark.parametrize("gradient", ["stl", "full"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_gradients_are_those_of_the_two_objectives_taken_apart(variant, gradient, generator):
    model, rows = mixed_model(generator), mixed_rows(generator)
    objective = DecomposedObjective.for_model(model, variant=variant, gradient=gradient, n_draws=2)
    noise = objective.draw_noise(rows, generator)
    of_decoder, of_encoder = (
        gradients(-separate_bound(model, rows, noise.normals[0], variant, which, gradient), model)
        for which in (True, False)
    )
    found = gradients(objective(model, rows, noise), model)

    for name, value in found.items():
        expected = of_encoder[name] if name.startswith("encoder") else of_decoder[name]
        assert expected.abs().max() > 0 or name.startswith("fill")
        torch.testing.assert_close(value, expected, rtol=EXACT, atol=EXACT, msg=name)


def test_the_decoder_ignores_and_the_encoder_heeds_what_is_imputed(generator):
    model, rows = oracle.linear_gaussian(), linear_rows(generator, n_rows=1)
    rows.batch.observed[:] = torch.tensor([True, True, False, False])
    objective = DecomposedObjective.for_model(model)
    normals = objective.draw_noise(rows, generator).normals[0]
    found = objective.evaluate(model, rows, rows.completed, normals)
    terms = {
        target: torch.autograd.grad(found.log_w[target].sum(), found.parameters, retain_graph=True)[0]
        for target in ("observed", "completed")
    }

    of_missing = [2, 3, 6, 7]  # locations and scales
    assert (terms["observed"][..., of_missing] == 0).all()
    assert (terms["completed"][..., of_missing] != 0).all()


def test_the_loss_is_the_same_with_and_without_gradients_and_nan_is_never_read(generator):
    model, rows = mixed_model(generator).eval(), mixed_rows(generator)
    objective = DecomposedObjective.for_model(model)
    noise = objective.draw_noise(rows, generator)
    with torch.no_grad():
        plain = objective(model, rows, noise)
    loss = objective(model, rows, noise)

    assert loss.requires_grad
    torch.testing.assert_close(loss.detach(), plain, rtol=0, atol=0)
    assert plain.isfinite().all()
    assert rows.batch.x.isnan().any()
    assert all(value.isfinite().all() for value in gradients(loss, model).values())


# ----------------------------------------------------------------------------------------- imputations


@pytest.mark.parametrize("imputer", ["lair", "pseudo-gibbs"])
def test_only_missing_values_of_the_batch_change_and_only_in_training(imputer, generator):
    model, rows = mixed_model(generator), mixed_rows(generator, n_rows=10)
    objective = DecomposedObjective.for_model(model, imputer=imputer, n_skipped=0)
    index = torch.tensor([7, 2, 5])
    unlimited = Limits(*torch.tensor([-math.inf, math.inf]).unsqueeze(-1))
    rows = CompletedRows.of(rows.batch, replace(rows.completions, limits=unlimited))
    part = rows[index]
    noise = objective.draw_noise(part, generator)
    before = rows.completions.x.clone()
    objective(model.eval(), part, noise)
    assert torch.equal(rows.completions.x, before)
    objective(model.train(), part, noise)
    after = rows.completions.x

    others = torch.ones(10, dtype=torch.bool).index_fill(0, index, False)
    holes = ~rows.batch.observed[:, None, :].expand_as(after)
    assert torch.equal(after[others], before[others])
    assert torch.equal(after[~holes], before[~holes])
    numbers = holes[..., [0, 4]] & ~others[:, None, None]
    assert numbers.any()
    assert (after[..., [0, 4]] != before[..., [0, 4]])[numbers].all()
    assert ((after[..., 1:4] == 0) | (after[..., 1:4] == 1)).all()
    assert (after[..., 1:4].sum(dim=-1) == 1).all()
    assert rows.completions.visits.tolist() == [0, 0, 1, 0, 0, 1, 0, 1, 0, 0]


def test_the_first_visits_leave_imputations_alone(generator):
    model, rows = oracle.linear_gaussian(), linear_rows(generator)
    objective = DecomposedObjective.for_model(model, n_skipped=2)
    before = rows.completions.x.clone()
    changed = []
    for _ in range(3):
        objective(model, rows, objective.draw_noise(rows, generator))
        changed.append(not torch.equal(rows.completions.x, before))

    assert changed == [False, False, True]


def test_draws_that_are_not_finite_or_run_away_are_not_taken(generator):
    rows = linear_rows(generator, n_rows=3, rate=1.0)
    rows = CompletedRows.of(rows.batch, Completions.start(
        rows.batch, ObservationModel.for_pixels(4, "gaussian"), 1, generator,
        donors=Incomplete(torch.tensor([[-2.0], [4.0]]).double().expand(2, 4), torch.ones(2, 4).bool()),
    ))  # fmt: skip
    drawn = torch.tensor([[[math.nan, 5.4, -3.4, math.inf]], [[5.6, -3.6, 0.0, -1e9]], [[0.0] * 4]]).double()
    before = rows.completions.x.clone()
    rows.completions.update(torch.arange(3), drawn)

    expected = torch.where(torch.tensor([[[0, 1, 1, 0]], [[0, 0, 1, 0]], [[1] * 4]]).bool(), drawn, before)
    assert torch.equal(rows.completions.x, expected)


def test_pseudo_gibbs_decodes_each_latent_and_lair_the_heaviest(generator):
    model, rows = oracle.linear_gaussian(), linear_rows(generator, n_rows=2, rate=0.5)
    normals = torch.randn(1, 2, N_COMPLETIONS, 2, generator=generator, dtype=torch.float64)
    cells = torch.full((2, N_COMPLETIONS, 4), 0.5, dtype=torch.float64)  # draws are the means
    uniforms = torch.rand(2, N_COMPLETIONS, generator=generator, dtype=torch.float64)

    plain = DecomposedObjective.for_model(model, imputer="pseudo-gibbs")
    found = plain.evaluate(model, rows, rows.completed, normals)
    means = model.observation.mean(found.parameters[0])
    torch.testing.assert_close(plain.impute(model, found, uniforms, cells), means, rtol=EXACT, atol=EXACT)

    heavy = torch.full((1, 2, N_COMPLETIONS), -100.0, dtype=torch.float64)
    heavy[0, 0, 2] = heavy[0, 1, 0] = 0.0
    found.log_w["observed"] = heavy
    drawn = DecomposedObjective.for_model(model, imputer="lair").impute(model, found, uniforms, cells)
    torch.testing.assert_close(drawn, means[[0, 1], [2, 0]].unsqueeze(1).expand_as(drawn))


def with_latents(rows, z):
    """The same rows, whose completions keep latents (N, K, L)."""
    completions = replace(rows.completions, z=z)
    return replace(rows, completions=completions)


def advance(model, rows, z, normals, uniforms, cells):
    objective = DecomposedObjective.for_model(model, imputer="mwg")
    found = objective.evaluate(model, rows, rows.completed, normals)
    return found, objective._advance(model, found, rows.completed, z, uniforms, cells)


def test_metropolis_within_gibbs_accepts_by_the_ratio_of_both_latents(generator):
    model, rows = oracle.linear_gaussian(), linear_rows(generator, n_rows=2, rate=0.5)
    with torch.no_grad():
        for parameter in model.encoder.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    shape = (2, N_COMPLETIONS)
    normals = torch.randn(1, *shape, 2, generator=generator, dtype=torch.float64)
    z = torch.randn(*shape, 2, generator=generator, dtype=torch.float64)
    cells = torch.full((*shape, 4), 0.5, dtype=torch.float64)  # draws are the means
    own = posterior_of(model, rows.completed)

    def log_weight(latent):
        log_p = model.observation.log_prob(model.decoder(latent), rows.completed).sum(dim=-1)
        log_q = Normal(own.loc.squeeze(-2), own.scale.squeeze(-2)).log_prob(latent).sum(dim=-1)
        return log_p + Normal(0.0, 1.0).log_prob(latent).sum(dim=-1) - log_q

    proposal = own.loc.squeeze(-2) + own.scale.squeeze(-2) * normals[0]
    ratio = (log_weight(proposal) - log_weight(z)).exp().detach()
    assert (ratio < 1).any()
    for factor, sign in ((0.99, True), (1.01, False)):
        uniforms = (factor * ratio).clamp(max=1.0)
        _, (drawn, after) = advance(model, rows, z, normals, uniforms, cells)
        taken = torch.where(ratio < 1, torch.tensor(sign), ratio > uniforms).unsqueeze(-1)
        expected = torch.where(taken, proposal, z).detach()
        torch.testing.assert_close(after, expected)
        torch.testing.assert_close(drawn, model.observation.mean(model.decoder(expected)).detach())


def test_metropolis_within_gibbs_is_pseudo_gibbs_at_first_and_if_the_posterior_is_exact(generator):
    model, rows = oracle.linear_gaussian(), linear_rows(generator, n_rows=3, rate=0.5)
    shape = (3, N_COMPLETIONS)
    normals = torch.randn(1, *shape, 2, generator=generator, dtype=torch.float64)
    cells = torch.rand(*shape, 4, generator=generator, dtype=torch.float64)
    nothing = torch.full((*shape, 2), torch.nan, dtype=torch.float64)
    ones = torch.ones(shape, dtype=torch.float64)
    found, (drawn, z) = advance(model, rows, nothing, normals, ones, cells)
    torch.testing.assert_close(drawn, model.observation.sample(found.parameters[0], cells))
    torch.testing.assert_close(z, found.z[0])
    almost = torch.full(shape, 1 - 1e-6, dtype=torch.float64)
    other = torch.randn(*shape, 2, generator=generator, dtype=torch.float64)
    _, (again, _) = advance(model, rows, other, normals, almost, cells)
    torch.testing.assert_close(again, drawn)  # the weight of every latent is p(x)


def test_training_keeps_the_latents_of_chains(generator):
    model, rows = oracle.linear_gaussian(), linear_rows(generator, n_rows=4, rate=0.5)
    rows = with_latents(rows, torch.full((4, N_COMPLETIONS, 2), torch.nan, dtype=torch.float64))
    objective = DecomposedObjective.for_model(model, imputer="mwg", n_skipped=0)
    model.train()
    objective(model, rows[:2], objective.draw_noise(rows[:2], generator))
    assert rows.completions.z[:2].isfinite().all()
    assert rows.completions.z[2:].isnan().all()


def test_held_out_rows_are_improved_before_they_are_scored_and_never_changed(generator):
    model = oracle.linear_gaussian()
    rows = linear_rows(generator, n_rows=5, held_out=True)
    objective = DecomposedObjective.for_model(model, imputer="pseudo-gibbs", n_skipped=0, n_rounds=2)
    noise = objective.draw_noise(rows, generator)
    before = rows.completions.x.clone()
    loss = objective(model, rows, noise)
    assert torch.equal(rows.completions.x, before)

    completed = rows.completed
    for r in range(2):
        z = posterior_of(model, completed).stratified(noise.normals[r, 0].unsqueeze(-2)).squeeze(-2)
        drawn = model.observation.sample(model.decoder(z), noise.cells[r])
        kept = rows.batch.observed[:, None] | ~rows.completions.limits.allow(drawn)
        completed = torch.where(kept, completed, drawn)
    rows.completions.x.copy_(completed)
    last = LatentNoise(*(part[2:] for part in noise))
    torch.testing.assert_close(objective(model, rows, last), loss, rtol=EXACT, atol=EXACT)


# ------------------------------------------------------------------------------------------- completions


def test_completions_start_from_observed_values_with_whole_blocks(generator):
    rows = mixed_rows(generator, n_rows=400, n_completions=5)
    x, observed, completed = rows.batch.x, rows.batch.observed, rows.completions.x

    assert completed.isfinite().all()
    assert torch.equal(completed[:, 3][observed], x[observed])
    for d in (0, 4):
        assert set(completed[..., d].flatten().tolist()) <= set(x[observed[:, d], d].tolist())
    assert (completed[..., 1:4].sum(dim=-1) == 1).all()
    seen, filled = observed[:, 1], ~observed[:, 1]
    shares = x[seen][:, 1:4].mean(dim=0)
    counts = completed[filled][..., 1:4].sum(dim=(0, 1))
    assert stats.chisquare(counts, counts.sum() * shares).pvalue > FAILURE_RATE
    number = completed[~observed[:, 0], :, 0]
    assert (number[:, 0] != number[:, 1]).float().mean() > 0.9  # copies are independent


def test_every_observed_value_is_as_likely_to_be_given(generator):
    values = torch.arange(20.0).unsqueeze(-1)
    donors = Incomplete(values, values % 2 == 0)
    batch = Incomplete(torch.full((2000, 1), math.nan), torch.zeros(2000, 1, dtype=torch.bool))
    completions = Completions.start(batch, ObservationModel.for_pixels(1, "gaussian"), 2, generator, donors)
    counts = torch.bincount(completions.x.flatten().long(), minlength=20)

    assert (counts[1::2] == 0).all()
    assert stats.chisquare(counts[::2]).pvalue > FAILURE_RATE


def test_columns_that_nobody_saw_start_from_the_filler(generator):
    observation = mixed_model(generator).observation
    batch = Incomplete(torch.full((3, 5), math.nan).double(), torch.zeros(3, 5, dtype=torch.bool))
    completions = Completions.start(batch, observation, 2, generator)

    assert torch.equal(completions.x, observation.filler().expand(3, 2, 5))


def test_slices_share_the_completions(generator):
    rows = linear_rows(generator, n_rows=6)
    shuffled = rows[torch.tensor([5, 4, 3, 2, 1, 0])][1:3]

    assert torch.equal(shuffled.completed, rows.completions.x[[4, 3]])
    assert torch.equal(shuffled.batch.x, rows.batch.x[[4, 3]])
    assert shuffled.completions is rows.completions


def test_what_does_not_fit_is_refused(generator):
    rows = linear_rows(generator)
    model = mixed_model(generator)
    mixture = LatentModel(
        ResidualMLP(8, 10), ResidualMLP(2, 8), ObservationModel.for_pixels(4, "gaussian"), 2, 2
    )

    with pytest.raises(ValueError, match="must be a single Gaussian, got 2"):
        posterior_of(mixture.double(), rows.completed)
    with pytest.raises(ValueError, match="must be of the same rows"):
        CompletedRows.of(rows.batch[:2], rows.completions)
    with pytest.raises(ValueError, match="n_completions must be at least 1, got 0"):
        Completions.start(rows.batch, model.observation, 0, generator)
    for name, value in {"variant": "vae", "imputer": "mean", "gradient": "dreg"}.items():
        with pytest.raises(ValueError, match=f"{name} must be one of .* got '{value}'"):
            DecomposedObjective.for_model(model, **{name: value})
    for name in ("n_draws", "n_skipped", "n_rounds"):
        with pytest.raises(ValueError, match=f"{name} must be at least [01], got -1"):
            DecomposedObjective.for_model(model, **{name: -1})


# --------------------------------------------------------------------------------------------- training


def test_training_comes_back_to_the_likelihood_of_the_true_model(generator):
    n_rows = 1000
    z = torch.randn(n_rows, oracle.N_LATENT, generator=generator, dtype=torch.float64)
    noise = torch.randn(n_rows, oracle.N_FEATURES, generator=generator, dtype=torch.float64)
    x = z @ torch.from_numpy(oracle.WEIGHT).mT + torch.from_numpy(oracle.BIAS + oracle.STD * noise.numpy())
    batch = Incomplete(x, torch.rand(x.shape, generator=generator) >= 0.3)
    model = oracle.linear_gaussian(tilt=0.3, widen=1.5)
    with torch.no_grad():
        model.decoder.output.weight.mul_(0.7)
        model.decoder.output.bias.zero_()

    before = mean_log_likelihood(model, batch[:300])
    rows = CompletedRows.of(batch, Completions.start(batch, model.observation, 5, generator))
    settings = TrainingSettings(
        max_epochs=50, batch_size=125, learning_rate=1e-2, schedule="cosine", compile=False
    )
    fit_module(model, DecomposedObjective.for_model(model), rows, generator=generator, settings=settings)
    truth = mean_log_likelihood(oracle.linear_gaussian(), batch[:300])
    after = mean_log_likelihood(model, batch[:300])

    assert before < truth - 0.3
    assert after > truth - 0.02
