"""The experiment on Gaussian inputs: the paper's data, the paper's numbers, and one run for real."""

import numpy as np
import pytest

from papers import EXPERIMENTS, SCALES, run
from papers.neumiss.gaussian import EXPERIMENT, GAP, IMPUTER, REGRESSOR, make_task


def test_test_rows_are_the_papers_whatever_the_number_of_training_rows():
    small, large = (make_task({"mechanism": "mcar", "n": n, "d": 10}, 0) for n in (10_000, 20_000))
    assert small.bayes_r2 == pytest.approx(0.818671, abs=5e-7)
    np.testing.assert_array_equal(small.test.incomplete, large.test.incomplete)
    np.testing.assert_array_equal(small.train.incomplete, large.train.incomplete[:10_000])
    assert (len(small.train.X), len(large.train.X), len(small.test.X)) == (10_000, 20_000, 10_000)


def test_every_setting_of_the_paper_has_its_numbers():
    for setting in EXPERIMENT.budget("paper").settings:
        assert EXPERIMENT.numbers(setting, IMPUTER, GAP).mean < -0.04
        number = EXPERIMENT.numbers(setting, REGRESSOR, GAP)
        assert (number is None) == (setting["d"] == 50)


def test_every_experiment_has_every_scale_and_claims():
    for name, experiment in EXPERIMENTS.items():
        assert experiment.name == name
        assert tuple(experiment.budgets) == SCALES
        assert experiment.claims


def test_the_regressor_reaches_the_bayes_rate_on_one_data_set_of_the_paper():
    [cell] = EXPERIMENT.run_cells([cell for cell in EXPERIMENT.cells("smoke") if cell.model == REGRESSOR][:1])
    assert cell.error is None
    assert abs(cell.scores[GAP]) < 0.002


@pytest.mark.slow
def test_the_claims_hold_at_the_smallest_scale(tmp_path):
    results = run(EXPERIMENT, "smoke", tmp_path)
    assert {verdict.outcome for verdict in results.verdicts()} <= {"met", "undecided", "not testable"}
