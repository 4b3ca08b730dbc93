"""Claims: met, not met and not testable, and that a failed run counts as a failure."""

from types import SimpleNamespace

import pytest

from papers import AsPublished, AtLeast, AtMostShare, Better, Cell, Published, Within


def evidence(*cells, numbers=None, lower=False):
    """Runs given as (setting d, model, seed, score or None for a failure)."""
    made = [
        Cell(
            {"d": d},
            model,
            seed,
            {} if score is None else {"r2": score},
            "ValueError: no" if score is None else None,
        )
        for d, model, seed, score in cells
    ]
    return SimpleNamespace(
        cells=made,
        published=lambda setting, model, metric: (numbers or {}).get((setting["d"], model)),
        sign=lambda metric: -1 if lower else 1,
    )


@pytest.mark.parametrize(("by", "outcome"), [(0.0, "met"), (0.2, "met"), (0.21, "not met")])
def test_better_compares_means_over_the_same_data(by, outcome):
    runs = evidence((1, "a", 0, 0.9), (1, "b", 0, 0.5), (1, "a", 1, 0.7), (1, "b", 1, 0.7), (1, "b", 2, 0.0))
    verdict = Better("a", "b", on="r2", by=by).judge(runs)
    assert (verdict.outcome, verdict.evidence) == (
        outcome,
        "+0.2000 ± 2.5412 on average, better in 1 of 2 runs",
    )


def test_equal_is_not_better_and_less_is_better_where_the_metric_is_an_error():
    assert Better("a", "b", on="r2").judge(evidence((1, "a", 0, 0.5), (1, "b", 0, 0.5))).outcome == "not met"
    runs = (1, "a", 0, 0.1), (1, "b", 0, 0.5)
    assert Better("a", "b", on="r2").judge(evidence(*runs)).outcome == "not met"
    assert Better("a", "b", on="r2", by=0.4).judge(evidence(*runs, lower=True)).outcome == "met"


def test_a_failed_run_counts_against_the_model_that_made_it():
    runs = evidence((1, "a", 0, None), (1, "b", 0, 0.1), (1, "a", 1, 0.9), (1, "b", 1, 0.1))
    verdict = Better("a", "b", on="r2").judge(runs)
    assert (verdict.outcome, verdict.evidence) == ("not met", "1 of 2 runs failed")
    verdict = Better("b", "a", on="r2").judge(evidence((1, "b", 0, 0.1), (1, "a", 0, None)))
    assert (verdict.outcome, verdict.evidence) == ("met", "every run of a failed")
    assert (
        Better("a", "b", on="r2").judge(evidence((1, "a", 0, float("nan")), (1, "b", 0, 0.1))).outcome
        == "not met"
    )
    assert Within("a", on="r2", of=0.9, by=0.1).judge(runs).outcome == "not met"
    assert AsPublished("a", on="r2").judge(
        evidence((1, "a", 0, None), numbers={(1, "a"): Published(-9.0)})
    ).outcome == "not met"  # fmt: skip


def test_within_must_hold_in_every_setting_of_its_condition():
    runs = evidence((1, "a", 0, 0.50), (1, "a", 1, 0.54), (2, "a", 0, 0.40))
    assert Within("a", on="r2", of=0.5, by=0.11).judge(runs).outcome == "met"
    verdict = Within("a", on="r2", of=0.5, by=0.05).judge(runs)
    assert (verdict.outcome, verdict.evidence) == ("not met", "-0.1000 at worst, at d = 2")
    assert Within("a", on="r2", of=0.5, by=0.05, where={"d": 1}).judge(runs).outcome == "met"
    assert Within("a", on="r2", of=0.5, by=0.05, where={"d": (1, 2)}).judge(runs).outcome == "not met"


def test_at_least_must_hold_in_every_setting_and_which_way_is_better_counts():
    runs = (1, "a", 0, 0.50), (1, "a", 1, 0.54), (2, "a", 0, 0.40)
    assert AtLeast("a", on="r2", bound=0.40).judge(evidence(*runs)).outcome == "met"
    verdict = AtLeast("a", on="r2", bound=0.41).judge(evidence(*runs))
    assert (verdict.outcome, verdict.evidence) == ("not met", "+0.4000 at worst, at d = 2")
    assert AtLeast("a", on="r2", bound=0.53, where={"d": 1}).judge(evidence(*runs)).outcome == "not met"
    verdict = AtLeast("a", on="r2", bound=0.51).judge(evidence(*runs, lower=True))
    assert (verdict.outcome, verdict.evidence) == ("not met", "+0.5200 at worst, at d = 1")
    assert AtLeast("a", on="r2", bound=-9).judge(evidence((1, "a", 0, None))).outcome == "not met"


def test_the_papers_number_must_be_reached_where_it_has_one():
    runs = (1, "a", 0, 0.50), (2, "a", 0, 0.40), (3, "a", 0, -5.0)
    numbers = {(1, "a"): Published(0.45), (2, "a"): Published(0.42)}
    verdict = AsPublished("a", on="r2").judge(evidence(*runs, numbers=numbers))
    assert (verdict.outcome, verdict.evidence) == ("not met", "-0.0200 at worst, at d = 2")
    assert AsPublished("a", on="r2", by=0.03).judge(evidence(*runs, numbers=numbers)).outcome == "met"
    assert AsPublished("a", on="r2").judge(evidence(*runs)).outcome == "not testable"


@pytest.mark.parametrize(
    "claim",
    [
        Better("a", "z", on="r2"),
        Within("a", "r2", 0, 1, where={"d": 9}),
        AsPublished("z", on="r2"),
        AtLeast("z", "r2", 0),
    ],
)
def test_without_runs_a_claim_cannot_be_tested(claim):
    assert claim.judge(evidence((1, "a", 0, 0.5))).outcome == "not testable"


def test_claims_are_written_in_words():
    assert str(Better("a", "b", on="r2")) == "a is better than b in r2"
    assert (
        str(Within("a", "r2", 0.5, 0.1, where={"d": (1, 2)})) == "a is within 0.1 of 0.5 in r2 (d = 1 or 2)"
    )


def test_the_mean_difference_of_pairs_has_its_t_interval():
    runs = evidence((1, "a", 0, 0.3), (1, "b", 0, 0.1), (1, "a", 1, 0.5), (1, "b", 1, 0.1))
    assert "+0.3000 ± 1.2706 on average" in Better("a", "b", on="r2").judge(runs).evidence  # 12.706 * 0.1


def test_a_share_of_another_score_is_judged_on_the_same_data():
    runs = ((1, "a", 0, 0.1), (1, "b", 0, 0.4), (1, "a", 1, 0.1), (1, "b", 1, 0.2), (1, "b", 2, 9.0))
    third = AtMostShare("a", "b", on="r2", share=1 / 3)
    assert third.judge(evidence(*runs)).outcome == "met"
    assert AtMostShare("a", "b", on="r2", share=0.3).judge(evidence(*runs)).outcome == "not met"
    assert "0.1000 against 0.3000, over 2 runs" in third.judge(evidence(*runs)).evidence
    assert third.judge(evidence((1, "a", 0, None), (1, "b", 0, 0.1))).outcome == "not met"
    assert third.judge(evidence((1, "a", 0, 0.1))).outcome == "not testable"
