"""`halfseen impute --derived`: columns that follow from others by a formula."""

import numpy as np
import pandas as pd
import pytest


@pytest.fixture
def run(call):
    """The command line with the real imputers."""
    return call


def test_derived_columns_follow_from_the_others(run, tmp_path):
    lines = [
        f"{1 + i / 7:.2f},{'' if i < 4 else 10 + i % 5 + 0.25},{'' if i < 6 else 1.5}" for i in range(20)
    ]
    (tmp_path / "t.csv").write_text("\n".join(["a,b,c", *lines]) + "\n")
    code, *_ = run("impute", "t.csv", "-o", "out.csv", "--derived", "c = 2 * a", "-q")
    assert code == 0
    out = pd.read_csv(tmp_path / "out.csv")
    np.testing.assert_allclose(out["c"][:6], 2 * out["a"][:6], atol=0.051)  # one decimal
    for text, message in (
        ("c", "is not of the form"),
        ("d = a", "refers to column 'd', which is not in the table"),
        ("c = a.b", "has a part (Attribute) that is not available"),
    ):
        code, _, err = run("impute", "t.csv", "-o", "other.csv", "--derived", text, "-q")
        assert code == 2
        assert message in err
        assert not (tmp_path / "other.csv").exists()
