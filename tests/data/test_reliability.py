"""Columns that are filled unreliably are left empty, on request or because a yes or no would be a guess."""

from dataclasses import replace

import numpy as np
import pytest

from halfseen.data.columns import Column
from halfseen.data.leaving import CELLS_TO_ACT, MIN_CELLS, ColumnCheck, leave_unreliable

NOTHING, GOOD = (0.0, -0.1), (0.8, 0.7)


def column(kind="binary", **settings):
    return Column("c", kind, "object", "label", levels=("ja", "nein"), **settings)


def check(skill, low, n_cells=100, measure="accuracy"):
    return {"c": ColumnCheck("c", measure, n_cells, 0.6, 0.6, skill, low)}


def is_left(one, checks, min_skill=None, at_chance=("binary",)):
    (found,) = leave_unreliable([one], checks, min_skill, at_chance)
    return found.left == "unreliable"


def test_a_check_is_the_ratio_of_losses():
    loss, baseline = np.repeat([0.0, 1.0], [30, 10]), np.repeat([0.0, 1.0], [20, 20])
    found = ColumnCheck.of("c", "accuracy", loss, baseline)
    assert (found.value, found.baseline, found.skill, found.n_cells) == (0.75, 0.5, 0.5, 40)
    assert found.skill_low < 0.5
    assert ColumnCheck.of("c", "error", 4 * loss, 4 * baseline).value == 1.0
    assert ColumnCheck.of("c", "accuracy", loss[: MIN_CELLS - 1], baseline[: MIN_CELLS - 1]) is None
    assert ColumnCheck.of("c", "accuracy", loss, 0 * baseline) is None
    assert ColumnCheck.of("c", "error", np.full(40, np.inf), baseline) is None


@pytest.mark.parametrize(
    ("one", "skill", "n_cells", "left"),
    [
        (column(), NOTHING, 100, True),
        (column(), (0.09, 0.05), 100, True),
        (column(), (0.3, -0.1), 100, False),  # rough, and little evidence
        (column(), GOOD, 100, False),
        (column(), NOTHING, CELLS_TO_ACT - 1, False),
        (column("categorical"), NOTHING, 100, False),
        (column("count"), NOTHING, 100, False),
        (column(fill=True), NOTHING, 100, False),
    ],
)
def test_by_default_only_yes_and_no_at_chance_level_are_left_empty(one, skill, n_cells, left):
    assert is_left(one, check(*skill, n_cells)) == left
    assert not is_left(one, check(*skill, n_cells), at_chance=())


@pytest.mark.parametrize("kind", ["binary", "categorical", "count", "datetime"])
def test_on_request_every_column_needs_some_skill(kind):
    assert is_left(column(kind), check(*NOTHING), 0.1)
    assert is_left(column(kind), check(0.3, -0.1, MIN_CELLS), 0.1)
    assert not is_left(column(kind), check(0.3, 0.1), 0.1)
    assert is_left(column(kind), check(0.3, 0.1), 0.4)
    assert not is_left(column(kind), {}, 0.1)
    assert leave_unreliable([column(kind, left="asked")], check(*NOTHING), 0.1)[0].left == "asked"


def test_the_reason_has_the_numbers():
    (found,) = leave_unreliable([column()], check(*NOTHING), 0.1)
    assert found.evidence == (
        "is filled no better than by the most frequent level (60% correct, compared with 60% for the most "
        "frequent level, of 100 hidden known values)"
    )
    assert replace(found, left=None, evidence="") == column()
    (found,) = leave_unreliable([column("count")], check(0.3, 0.1, measure="error"), 0.4)
    assert found.evidence.startswith(
        "is filled with too little skill (typical error 0.60 standard deviations"
    )


def test_few_hidden_values_are_no_evidence_of_chance():
    (found,) = leave_unreliable([column()], check(0.6, -0.1, 20), 0.1)
    assert found.evidence.startswith("is not clearly filled better than by the most frequent level")
    assert check(0.6, -0.1)["c"].is_unclear
    assert check(0.6, -0.1)["c"].grade == "poor"
    assert not check(*NOTHING)["c"].is_unclear
    assert not check(*GOOD)["c"].is_unclear
