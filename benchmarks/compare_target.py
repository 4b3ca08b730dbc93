"""Does `halfseen compare --target` choose well? Its winner beside the best method on rows that it never saw.

Each table is split: the command compares predictors on one part within its budget; then every method is
fitted to that part and scored on the other, and so is their average with the weights that the command found.
Two criteria say whether the choice is good: its mean loss on the other part is within one standard error of
the lowest one, where the standard error is (1) that of the paired difference, or (2) that of the mean loss of
the best method, as in the rule of Breiman, Friedman, Olshen and Stone (1984). The first is the stricter one.
The same is reported of the choice among single methods, without their average. Writes
results/compare_target.json. With `--others`, five other tables with other seeds are used, as a check that
nothing depends on these tables; the results are then in results/compare_target_others.json.
"""

import argparse
import os
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from harness import store

from halfseen.cli.compare_target import COMPARED, build_compared, compare_on
from halfseen.cli.progress import Reporter
from halfseen.evaluation.candidates import CodedTable
from halfseen.evaluation.prediction import Target, predict_codes, prediction_losses, prepared, read_target
from halfseen.evaluation.prediction_result import AVERAGE
from halfseen.evaluation.protocol import provenance
from halfseen.evaluation.repetitions import average_predictions
from halfseen.missingness import MCAR, LogisticSelfMasking

BUDGET = 300.0
COMPARED_ROWS, HELD_OUT_ROWS = 1000, 4000
RATE = 0.3
RATES = (0.0, 0.1, 0.3, 0.5)


@dataclass(frozen=True)
class Table:
    """A file, its target, columns that are no inputs, and why values are missing."""

    file: str
    target: str
    mechanism: str
    dropped: tuple[str, ...] = ()


TABLES = {
    "abalone": Table("abalone/abalone.csv.gz", "rings", "mcar"),
    "california": Table("california_housing/california_housing.csv.gz", "SalePrice", "self-masking"),
    "adult": Table("adult/adult.csv.gz", "income", "self-masking", ("split",)),
    "bank": Table("bank_marketing/bank_marketing.csv.gz", "y", "mcar"),
    "pima": Table("pima_diabetes/pima_diabetes.csv.gz", "diabetes", "original"),
}
OTHERS = {
    "concrete": Table("concrete/concrete.csv.gz", "strength_mpa", "self-masking"),
    "wine": Table("winequality_white/winequality_white.csv.gz", "quality", "mcar"),
    "credit": Table("credit_approval/credit_approval.csv.gz", "15", "mcar"),
    "vehicle": Table("vehicle/vehicle.csv.gz", "Class", "mcar"),
    "letter": Table("letter/letter.csv.gz", "lettr", "self-masking"),
}


def read(folder: Path, table: Table, seed: int) -> tuple[pd.DataFrame, Target]:
    """Inputs with missing values, in a random order, and the target."""
    frame = pd.read_csv(folder / table.file).drop(columns=list(table.dropped)).dropna(subset=[table.target])
    frame = frame.sample(min(len(frame), COMPARED_ROWS + HELD_OUT_ROWS), random_state=seed)
    frame = frame.reset_index(drop=True)
    target = read_target(frame, table.target)
    X = frame.drop(columns=table.target)
    numbers = list(X.select_dtypes("number").columns)
    X = X.astype(dict.fromkeys(numbers, float))
    if table.mechanism == "mcar":
        return MCAR(rate=RATE).fit(X).amputate(X, random_state=seed + 1), target
    if table.mechanism == "self-masking":
        rule = LogisticSelfMasking(rate=RATE, columns=numbers)
        return rule.fit(X).amputate(X, random_state=seed + 1), target
    return X, target


def part(target: Target, rows: np.ndarray) -> Target:
    """The target of some rows."""
    return Target(target.name, target.task, target.values[rows], target.known[rows], target.reason)


def measure(chosen: Table, folder: Path, budget: float, seed: int) -> dict[str, object]:
    """The choice of the command, and the losses of all methods on the rows that it did not see."""
    import pyarrow as pa

    X, target = read(folder, chosen, seed)
    n_compared = min(COMPARED_ROWS, len(X) // 2)
    inputs = pa.Table.from_pandas(X.iloc[:n_compared], preserve_index=False)
    began = time.perf_counter()
    comparison = compare_on(
        inputs, part(target, np.arange(n_compared)), tuple(COMPARED), Reporter(quiet=True),
        settings=None, budget=budget, max_rows=n_compared, seed=seed, rates=RATES,
    )  # fmt: skip
    seconds = time.perf_counter() - began
    table = CodedTable.read(X)
    losses, failed = score_held_out(table, target, n_compared, comparison.weights)
    single = [name for name in losses if name != AVERAGE]
    places = comparison.places()
    return {
        "task": target.task,
        "mechanism": chosen.mechanism,
        "n_compared": n_compared,
        "n_held_out": len(X) - n_compared,
        "budget": budget,
        "seconds": seconds,
        "n_splits": comparison.n_splits,
        "n_repeats": comparison.n_repeats,
        "n_failed": sum(record.status == "failed" for record in comparison.records),
        "n_out_of_budget": sum(record.status == "out of budget" for record in comparison.records),
        "tied": [place.method for place in places if place.tied],
        "weights": comparison.weights,
        "held_out_losses": {name: float(loss.mean()) for name, loss in losses.items()},
        "failed_on_held_out": failed,
        **judge(places[0].method, losses),
        "single": judge(comparison.places(among=single)[0].method, {name: losses[name] for name in single}),
    }


def judge(winner: str, losses: dict[str, np.ndarray]) -> dict[str, object]:
    """How much worse the winner is than the best method, beside two standard errors."""
    best = min(losses, key=lambda name: losses[name].mean())
    difference = losses[winner] - losses[best]
    excess, paired, own = float(difference.mean()), standard_error(difference), standard_error(losses[best])
    return {
        "winner": winner,
        "best": best,
        "excess": excess,
        "standard_error": paired,
        "within_one_standard_error": excess <= paired,
        "standard_error_of_best": own,
        "within_one_standard_error_of_best": excess <= own,
    }


def score_held_out(
    table: CodedTable, target: Target, n_compared: int, weights: dict[str, float]
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The losses of rows after the first ones, by methods fitted to these and by their average; failures."""
    rows = np.arange(n_compared, len(table.codes))
    truth, predictions, failed = target.values[rows], {}, {}
    single = [name for name in COMPARED if name != AVERAGE]
    for method, estimator in build_compared(single, target.task).items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                fitted = prepared(estimator, table, 0)
                fitted.fit(table.codes[:n_compared], target.values[:n_compared])
                predictions[method] = predict_codes(fitted, table.codes[rows], target)
            except (RuntimeError, ValueError) as error:
                failed[method] = str(error)
    if weights:
        predictions[AVERAGE] = average_predictions(predictions, weights)
    losses = {method: prediction_losses(one, target, truth) for method, one in predictions.items()}
    return losses, failed


def standard_error(values: np.ndarray) -> float:
    """The standard error of a mean."""
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def main() -> None:
    """Measures all tables, prints a line for each, and stores the result if none is left out."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--budget", type=float, default=BUDGET, help="seconds for each comparison")
    parser.add_argument("--only", default="", help="names of tables, with commas; then nothing is stored")
    parser.add_argument("--others", action="store_true", help="other tables, with other seeds")
    arguments = parser.parse_args()
    folder = Path(os.environ["HALFSEEN_DATA"])
    tables, seed = (OTHERS, 1) if arguments.others else (TABLES, 0)
    names = [name for name in arguments.only.split(",") if name] or list(tables)
    results = {}
    for name in names:
        results[name] = measure(tables[name], folder, arguments.budget, seed)
        one = results[name]
        print(
            f"{name}: winner {one['winner']}, best on new rows {one['best']}, excess {one['excess']:.4f} "
            f"(standard error {one['standard_error']:.4f} paired, {one['standard_error_of_best']:.4f} of the "
            f"best); best single method {one['single']['best']}; {one['n_repeats']} repetitions, "
            f"{one['seconds']:.0f} s of {one['budget']:.0f}, {one['n_out_of_budget']} runs out of budget, "
            f"{one['n_failed']} failed",
            flush=True,
        )
    content = {"provenance": provenance(), "tables": results}
    for what, judged in (("", [*results.values()]), ("single_", [one["single"] for one in results.values()])):
        good = sum(one["within_one_standard_error"] for one in judged)
        usual = sum(one["within_one_standard_error_of_best"] for one in judged)
        content |= {f"n_{what}good": good, f"n_{what}good_by_best": usual}
        print(
            f"{'among single methods: ' if what else ''}within one standard error of the paired difference "
            f"from the best: {good} of {len(judged)}; of the best method's own mean: {usual}"
        )
    if len(names) == len(tables):
        store("compare_target_others" if arguments.others else "compare_target", content)


if __name__ == "__main__":
    main()
