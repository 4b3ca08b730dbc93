"""The distribution function of Student's t against scipy's."""

import pytest
import torch
from scipy import special

from halfseen.distributions.leaves import student_t_cdf


@pytest.mark.parametrize(("df", "tolerance"), [(3.0, 1.1e-5), (5.0, 2e-7), (7.0, 1e-8), (1e6, 1e-12)])
def test_the_distribution_function_is_as_exact_as_documented(df, tolerance):
    t = torch.linspace(-30, 30, 6001, dtype=torch.float64)
    exact = torch.from_numpy(special.stdtr(df, t.numpy()))
    torch.testing.assert_close(student_t_cdf(t, torch.tensor(df).double()), exact, rtol=0, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_reaches_zero_and_one_however_far_out(dtype):
    far = torch.tensor([-torch.inf, -1e30, 1e30, torch.inf], dtype=dtype)
    for df in (3.0, 10.0, 1e7):
        found = student_t_cdf(far, torch.tensor(df, dtype=dtype))
        assert found.tolist() == [0.0, 0.0, 1.0, 1.0]
