"""AutoImpute: what it recovers, keeps and refuses."""

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse

from halfseen.ratings import AutoImpute


@pytest.fixture(scope="module")
def cells():
    """Expression with an effect of the cell and of the gene; two values of five are missed."""
    rng = np.random.default_rng(0)
    truth = 6 + rng.normal(size=(80, 1)) + rng.normal(size=(1, 25))
    return truth, np.where(rng.random(truth.shape) < 0.4, 0.0, truth)


@pytest.mark.parametrize("parameters", [{}, {"centre": False}, {"sparsity_norm": False}])
def test_hidden_values_are_recovered_better_than_by_gene_means(cells, parameters):
    truth, shown = cells
    model = AutoImpute(16, penalty=1.0, max_epochs=150, random_state=0, **parameters)
    completed = model.fit_transform(scipy.sparse.csr_array(shown))
    means = shown.sum(axis=0) / (shown > 0).sum(axis=0)
    missed = shown == 0
    error = np.abs(completed - truth)[missed].mean()
    assert error < 0.7 * np.abs(means - truth)[missed].mean()
    np.testing.assert_array_equal(completed[~missed], shown[~missed])
    assert (completed >= 0).all()


def test_an_annotated_matrix_is_read_and_gives_an_array(cells):
    _, shown = cells
    model = AutoImpute(4, max_epochs=1, random_state=0)
    expected = model.fit_transform(shown)
    annotated = SimpleNamespace(X=scipy.sparse.csr_matrix(shown))
    np.testing.assert_array_equal(model.fit(annotated).transform(annotated), expected)


def test_a_layer_of_an_annotated_matrix_may_be_read_in_its_place(cells):
    _, shown = cells
    expected = AutoImpute(4, max_epochs=1, random_state=0).fit_transform(shown)
    annotated = SimpleNamespace(X=np.ones((2, 2)), layers={"logs": scipy.sparse.csr_matrix(shown)})
    model = AutoImpute(4, layer="logs", max_epochs=1, random_state=0)
    np.testing.assert_array_equal(model.fit_transform(annotated), expected)
    with pytest.raises(ValueError, match="The data have no layer 'counts'; their layers are 'logs'"):
        AutoImpute(layer="counts").fit(annotated)
    with pytest.raises(ValueError, match="layer='logs' is for an AnnData, got ndarray"):
        model.transform(shown)


def test_a_cell_without_detected_genes_is_predicted_from_biases(cells):
    model = AutoImpute(4, max_epochs=2, random_state=0).fit(cells[1])
    assert np.isfinite(model.transform(np.zeros((1, 25)))).all()


def test_what_cannot_be_learned_from_is_refused():
    with pytest.raises(ValueError, match="All values of X are zero or missing: nothing can be learned"):
        AutoImpute().fit(np.zeros((3, 2)))
    with pytest.raises(ValueError, match=r"penalty must be positive and finite, got 0\."):
        AutoImpute(penalty=0).fit(np.ones((3, 2)))
