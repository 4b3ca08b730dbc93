"""The experiment on the automatic choice of imputers: its masks and its budget."""

import numpy as np
import pytest

from papers.library.auto import AUTO, EXPERIMENT, MECHANISMS, RATE, make_task


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_known_cells_are_hidden_at_the_rate(mechanism, shared_data):
    task = make_task({"table": "maternal", "mechanism": mechanism, "rows": 1000}, 0)
    assert not (task.hidden & np.isnan(task.table.codes)).any()
    hidden = task.hidden.mean(axis=0)
    assert hidden[hidden > 0].mean() == pytest.approx(RATE, abs=0.05)


def test_the_automatic_choice_meets_every_table_at_the_small_scale():
    tables = {cell.setting["table"] for cell in EXPERIMENT.cells("small") if cell.model == AUTO}
    assert len(tables) == 10
