"""Claims: met, not met and not testable, and that a failed run counts as a failure."""

from types import SimpleNamespace

import pytest
from statsmodels.stats.proportion import proportion_confint

from papers import AsPublished, AtLeast, AtMostShare, Better, Cell, Published, Within
from papers.claims import Covers, Unbiased, binomial_interval

PAPER = Published(0.50)


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


@pytest.mark.parametrize(("by", "outcome"), [(0.0, "undecided"), (0.2, "undecided"), (0.21, "not met")])
def test_better_compares_means_over_the_same_data(by, outcome):
    runs = evidence((1, "a", 0, 0.9), (1, "b", 0, 0.5), (1, "a", 1, 0.7), (1, "b", 1, 0.7), (1, "b", 2, 0.0))
    verdict = Better("a", "b", on="r2", by=by).judge(runs)
    assert (verdict.outcome, verdict.evidence) == (
        outcome,
        "+0.2000 ± 2.5412 on average, better in 1 of 2 runs",
    )


def pairs_with_gains(*gains):
    """Runs of a and b on the same data, in which a is better by these amounts."""
    return evidence(
        *(run for seed, gain in enumerate(gains) for run in ((1, "a", seed, gain), (1, "b", seed, 0.0)))
    )


@pytest.mark.parametrize(
    ("gains", "by", "outcome"),
    [
        ((0.1, 0.1, 0.1), 0.0, "met"),
        ((0.1, 0.2, 0.3), 0.0, "undecided"),  # 0.2 with a half width of 4.303 * 0.1 / sqrt(3) = 0.248
        ((0.15, 0.2, 0.25), 0.0, "met"),  # and with half of that
        ((0.15, 0.2, 0.25), 0.19, "met"),
        ((0.15, 0.2, 0.25), 0.21, "not met"),
        ((-0.1, -0.2, -0.3), 0.0, "not met"),
        ((0.5,), 0.0, "undecided"),
        ((-0.01, -0.01, -0.01), -0.03, "met"),
        ((-0.01, -0.02, -0.03), -0.03, "undecided"),
        ((-0.03, -0.04, -0.05), -0.03, "not met"),
    ],
)
def test_a_comparison_is_met_only_if_its_interval_excludes_zero(gains, by, outcome):
    assert Better("a", "b", on="r2", by=by).judge(pairs_with_gains(*gains)).outcome == outcome


def test_equal_is_not_better_and_less_is_better_where_the_metric_is_an_error():
    assert Better("a", "b", on="r2").judge(evidence((1, "a", 0, 0.5), (1, "b", 0, 0.5))).outcome == "not met"
    runs = (1, "a", 0, 0.1), (1, "b", 0, 0.5)
    assert Better("a", "b", on="r2").judge(evidence(*runs)).outcome == "not met"
    assert Better("a", "b", on="r2", by=0.4).judge(evidence(*runs, lower=True)).outcome == "undecided"


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
    runs = evidence((1, "a", 0, 0.519), (1, "a", 1, 0.521), (2, "a", 0, 0.401), (2, "a", 1, 0.399))
    assert Within("a", on="r2", of=0.5, by=0.12).judge(runs).outcome == "met"
    verdict = Within("a", on="r2", of=0.5, by=0.05).judge(runs)
    assert (verdict.outcome, verdict.evidence) == ("not met", "-0.1000 ± 0.0127 at worst, at d = 2")
    assert Within("a", on="r2", of=0.5, by=0.05, where={"d": 1}).judge(runs).outcome == "met"
    assert Within("a", on="r2", of=0.5, by=0.05, where={"d": (1, 2)}).judge(runs).outcome == "not met"


@pytest.mark.parametrize(
    ("scores", "outcome"),
    [
        ((0.50, 0.52, 0.54), "met"),  # 0.52 with a half width of 4.303 * 0.02 / sqrt(3) = 0.0497
        ((0.48, 0.50, 0.52), "undecided"),  # 0.03 above the number, less than half of the interval
        ((0.44, 0.46, 0.48), "not met"),
        ((0.9,), "undecided"),  # a single run has no interval
        ((0.475, 0.475), "met"),  # without spread
    ],
)
def test_one_model_is_as_good_as_a_number_only_if_its_whole_interval_is(scores, outcome):
    runs = evidence(*((1, "a", seed, score) for seed, score in enumerate(scores)), numbers={(1, "a"): PAPER})
    assert AtLeast("a", on="r2", bound=0.47).judge(runs).outcome == outcome
    assert AsPublished("a", on="r2", by=0.03).judge(runs).outcome == outcome
    assert Within("a", on="r2", of=1.47, by=1.0).judge(runs).outcome == outcome


def test_a_setting_that_is_open_makes_a_claim_over_all_settings_undecided():
    sure = ((1, "a", 0, 0.9), (1, "a", 1, 0.9))
    runs = evidence(*sure, (2, "a", 0, 0.6))
    verdict = AtLeast("a", on="r2", bound=0.5).judge(runs)
    assert (verdict.outcome, verdict.evidence) == ("undecided", "+0.6000 at worst in a single run, at d = 2")
    runs = evidence(*sure, (2, "a", 0, 0.6), (3, "a", 0, 0.4))
    assert AtLeast("a", on="r2", bound=0.5).judge(runs).outcome == "not met"


def test_at_least_must_hold_in_every_setting_and_which_way_is_better_counts():
    runs = (1, "a", 0, 0.519), (1, "a", 1, 0.521), (2, "a", 0, 0.40), (2, "a", 1, 0.40)
    assert AtLeast("a", on="r2", bound=0.40).judge(evidence(*runs)).outcome == "met"
    verdict = AtLeast("a", on="r2", bound=0.41).judge(evidence(*runs))
    assert (verdict.outcome, verdict.evidence) == ("not met", "+0.4000 ± 0.0000 at worst, at d = 2")
    assert AtLeast("a", on="r2", bound=0.53, where={"d": 1}).judge(evidence(*runs)).outcome == "not met"
    verdict = AtLeast("a", on="r2", bound=0.51).judge(evidence(*runs, lower=True))
    assert (verdict.outcome, verdict.evidence) == ("not met", "+0.5200 ± 0.0127 at worst, at d = 1")
    assert AtLeast("a", on="r2", bound=-9).judge(evidence((1, "a", 0, None))).outcome == "not met"


def test_the_papers_number_must_be_reached_where_it_has_one():
    runs = (1, "a", 0, 0.50), (2, "a", 0, 0.40), (3, "a", 0, -5.0)
    numbers = {(1, "a"): Published(0.45), (2, "a"): Published(0.42)}
    verdict = AsPublished("a", on="r2").judge(evidence(*runs, numbers=numbers))
    assert (verdict.outcome, verdict.evidence) == ("not met", "-0.0200 at worst in a single run, at d = 2")
    assert AsPublished("a", on="r2", by=0.03).judge(evidence(*runs, numbers=numbers)).outcome == "undecided"
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
    third = AtMostShare("a", "b", on="r2", share=1 / 2.9)
    assert third.judge(evidence(*runs)).outcome == "undecided"
    clear = ((1, "a", 0, 0.1), (1, "b", 0, 0.9), (1, "a", 1, 0.1), (1, "b", 1, 0.9))
    assert third.judge(evidence(*clear)).outcome == "met"
    assert AtMostShare("a", "b", on="r2", share=0.3).judge(evidence(*runs)).outcome == "not met"
    assert "0.1000 against 0.3000, over 2 runs" in third.judge(evidence(*runs)).evidence
    assert third.judge(evidence((1, "a", 0, None), (1, "b", 0, 0.1))).outcome == "not met"
    assert third.judge(evidence((1, "a", 0, 0.1))).outcome == "not testable"


def blocks(*scores):
    """Runs of blocks of 50 repetitions, with the scores of each."""
    cells = [Cell({"repetitions": 50}, "a", seed, score) for seed, score in enumerate(scores)]
    return SimpleNamespace(cells=cells)


@pytest.mark.parametrize("share", [0.0, 0.4, 0.95, 1.0])
def test_the_interval_of_a_share_is_that_of_wilson(share):
    expected = proportion_confint(share * 200, 200, method="wilson")
    assert binomial_interval(share, 200) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("shares", "outcome"),
    [
        ((0.92, 0.98), "met"),  # 0.95 on average
        ((0.96, 0.92, 0.92, 0.92), "met"),  # 0.93 but for rounding
        ((0.92, 0.92), "undecided"),  # 92 of 100: 0.85 to 0.96
        ((0.80, 0.90), "not met"),  # 85 of 100: 0.77 to 0.91
        ((1.00, 1.00), "undecided"),  # 100 of 100: 0.963 to 1
    ],
)
def test_a_coverage_is_judged_by_its_mean_and_its_interval(shares, outcome):
    runs = blocks(*({"x": share, "z": 0.95} for share in shares))
    assert Covers("a", ["z"], 0.93, 0.97).judge(runs).outcome == "met"
    verdict = Covers("a", ["z", "x"], 0.93, 0.97).judge(runs)
    assert verdict.outcome == outcome
    assert outcome == "met" or verdict.evidence.endswith("at worst, x")


@pytest.mark.parametrize(
    ("biases", "outcome"),
    [
        ((0.5, -0.4), "met"),  # 0.05 with a standard deviation of 2
        ((0.5, 0.5), "undecided"),  # 0.25 standard deviations; 100 repetitions have a half width of 0.198
        ((-0.7, -0.7), "not met"),  # -0.35
    ],
)
def test_a_bias_is_judged_by_the_spread_of_estimates(biases, outcome):
    runs = blocks(
        *({"bias": bias, "variance": v} for bias, v in zip(biases, (3.0, 5.0), strict=True)),
    )
    verdict = Unbiased("a", {"bias": "variance"}, 0.1).judge(runs)
    assert verdict.outcome == outcome
    assert verdict.evidence.startswith(
        f"{sum(biases) / 4:.3f} (95% interval {sum(biases) / 4 - 0.1984:.3f} to"
    )


def test_claims_over_repetitions_count_failures_and_need_runs():
    failed = SimpleNamespace(cells=[Cell({"repetitions": 50}, "a", 0, error="ValueError: no")])
    for claim in (Covers("a", ["x"], 0.9, 1.0), Unbiased("a", {"x": "v"}, 0.1)):
        assert claim.judge(failed).outcome == "not met"
        assert claim.judge(SimpleNamespace(cells=[])).outcome == "not testable"


def test_runs_that_lack_the_score_of_a_claim_were_not_made_for_it():
    runs = evidence((1, "a", 0, 0.9), (1, "b", 0, 0.5))
    claims = Better("a", "b", on="new"), AtMostShare("a", "b", on="new", share=0.5), AtLeast("a", "new", 1)
    covers = SimpleNamespace(cells=[Cell({"repetitions": 50}, "a", 0, {"bias": 0.1})])
    assert {claim.judge(runs).outcome for claim in claims} == {"not testable"}
    assert Covers("a", ["new"], 0.9, 1.0).judge(covers).outcome == "not testable"
    assert Unbiased("a", {"bias": "new"}, 0.1).judge(covers).outcome == "not testable"
