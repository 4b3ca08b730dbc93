"""MADE by enumeration: densities sum to one, outputs see earlier features only, draws follow the density."""

import numpy as np
import pytest
import torch
from scipy import stats
from tolerances import EXACT, FAILURE_RATE

from halfseen.nn.sparsity import sn_mask
from halfseen.sparsity.made import MaskedAutoregression, connect, draw_degrees

D, WIDTH = 8, 30
EVERY_ROW = torch.cartesian_prod(*[torch.arange(2)] * D)


def network(generator, normalisation, n_orderings=1):
    pairs = [draw_degrees(D, WIDTH, generator) for _ in range(n_orderings)]
    places, degrees = (torch.stack(parts) for parts in zip(*pairs, strict=True))
    made = MaskedAutoregression(places, degrees, normalisation).double().requires_grad_(False)
    for parameter in made.parameters():
        parameter.normal_(generator=generator)
    kept = torch.rand(200, D, generator=generator) < 0.3
    bias = made.output_bias.clone()
    made.fit(kept)
    made.output_bias.copy_(bias)
    return made


@pytest.mark.parametrize("n_orderings", [1, 3])
@pytest.mark.parametrize("normalisation", [None, "mask", "causal"])
def test_the_probabilities_of_all_rows_sum_to_one(generator, normalisation, n_orderings):
    made = network(generator, normalisation, n_orderings)
    assert float(made(EVERY_ROW).exp().sum()) == pytest.approx(1.0, abs=EXACT)


def test_the_published_normalisation_of_inputs_is_no_density(generator):
    total = float(network(generator, "input")(EVERY_ROW).exp().sum())
    assert abs(total - 1) > 0.01


@pytest.mark.parametrize(
    ("normalisation", "leaks"), [(None, 0), ("mask", 0), ("causal", 0), ("input", 1), ("all", 1)]
)
def test_flipping_a_feature_changes_only_the_outputs_of_later_ones(generator, normalisation, leaks):
    made = network(generator, normalisation)
    rows = EVERY_ROW[torch.randperm(len(EVERY_ROW), generator=generator)[:20]]
    violations = 0
    for feature in range(D):
        flipped = rows.clone()
        flipped[:, feature] = 1 - flipped[:, feature]
        moved = ((made.logits(rows, 0) - made.logits(flipped, 0)).abs() > 1e-9).any(dim=0)
        violations += int((moved & (made.places[0] <= made.places[0, feature])).sum())
    assert (violations > 0) == bool(leaks)


def test_the_mean_over_orderings_is_that_of_densities(generator):
    made = network(generator, None, n_orderings=3)
    each = torch.stack([made.log_prob(EVERY_ROW, e).exp() for e in range(3)])
    torch.testing.assert_close(made(EVERY_ROW).exp(), each.mean(dim=0), rtol=EXACT, atol=EXACT)


def test_the_causal_normalisation_divides_by_the_ones_that_a_unit_sees(generator):
    made = network(generator, "causal")
    row = EVERY_ROW[77].double()
    first, second = connect(made.places[0], made.degrees[0])
    seen = first.double() @ row
    factor = torch.where(seen > 0, made.mean_counts[0] / seen.clamp(min=1), 0.0)
    hidden = (factor * ((first * made.weight) @ row) + made.bias).relu()
    expected = (second * made.output_weight) @ hidden + made.output_bias
    torch.testing.assert_close(made.logits(row[None], 0)[0], expected, rtol=EXACT, atol=EXACT)


def test_normalised_masks_have_equal_sums_and_one_output_without_connections(generator):
    places, degrees = draw_degrees(D, WIDTH, generator)
    first, second = (sn_mask(mask) for mask in connect(places, degrees))
    for mask in (first, second):
        sums = mask.sum(dim=1)
        torch.testing.assert_close(sums[sums > 0], sums.max().expand(int((sums > 0).sum())))
    assert (second.sum(dim=1) == 0).sum() == 1
    assert (first.sum(dim=1) > 0).all()


def test_draws_follow_the_density(generator):
    made = network(generator, "causal", n_orderings=1)
    drawn = made.sample(4000, 0, generator).long() @ (2 ** torch.arange(D - 1, -1, -1))
    expected = made(EVERY_ROW).exp().numpy() * 4000
    found = np.bincount(drawn.numpy(), minlength=len(EVERY_ROW))
    rare = expected < 5
    expected, found = (np.append(part[~rare], part[rare].sum()) for part in (expected, found))
    assert stats.chisquare(found, expected).pvalue > FAILURE_RATE


def test_all_is_the_normalisation_of_inputs_on_normalised_connections():
    made, of_inputs, of_masks = (
        network(torch.Generator().manual_seed(0), one) for one in ("all", "input", "mask")
    )
    for other in (of_inputs, of_masks):
        other.load_state_dict(made.state_dict())
    for buffer in ("into_hidden", "into_output"):
        torch.testing.assert_close(getattr(made, buffer), getattr(of_masks, buffer))
        setattr(of_inputs, buffer, getattr(made, buffer))
    rows = torch.cartesian_prod(*[torch.arange(2)] * made.places.shape[1])
    torch.testing.assert_close(made(rows), of_inputs(rows))
    assert not torch.allclose(made(rows), of_masks(rows))
