"""What classifiers share."""

import numpy as np
import torch

from halfseen.base.targets import WithClasses


class Certain(WithClasses):
    """Gives one class no probability at all in the first row."""

    def _logits(self, X):
        return torch.tensor([[0.0, 1.0], [0.25, 0.75]], dtype=torch.float64).log()


def test_the_log_of_a_probability_of_zero_is_minus_infinity_without_a_warning():
    np.testing.assert_allclose(
        Certain().predict_log_proba(None), [[-np.inf, 0.0], [-2 * np.log(2), np.log(0.75)]]
    )
