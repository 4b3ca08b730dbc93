"""How good is what `halfseen fit` saves? Its predictions of new rows beside those of each method.

Each table is split: `halfseen fit --method auto` chooses, fits and saves a predictor by one part within its
budget, and every single method is fitted to the same rows. All are scored on the other part: by squared error
or log-loss and, for numbers, by how often 90% intervals contain the target, and how wide they are. Writes
results/fit_auto.json and its table in docs/guide/prediction.md.
"""

import argparse
import os
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from compare_target import COMPARED_ROWS, OTHERS, TABLES, Table, read, standard_error
from harness import ROOT, store_with_table

from halfseen import load
from halfseen.cli.compare_target import SAVED, build_predictor
from halfseen.cli.fit import fit
from halfseen.cli.options import TaskName
from halfseen.cli.progress import Reporter
from halfseen.cli.requests import FitRequest
from halfseen.evaluation.prediction import Target, predict_codes, prediction_losses
from halfseen.evaluation.protocol import provenance

BUDGET = 45.0
LEVEL = 0.9
SEED = 3  # other rows and masks than in compare_target.py
CHOSEN = {
    **TABLES,
    "concrete": OTHERS["concrete"],
    "wine": OTHERS["wine"],
    "power": Table("power_plant/power_plant.csv.gz", "PE", "mcar"),
}
PAGE = ROOT / "docs" / "guide" / "prediction.md"


def measure(chosen: Table, folder: Path, budget: float) -> dict[str, Any]:
    """The losses and intervals of the saved predictor and of all single methods on new rows."""
    X, target = read(folder, chosen, SEED)
    n_train = min(COMPARED_ROWS, len(X) // 2)
    table = pa.Table.from_pandas(X, preserve_index=False)
    train, new = table.slice(0, n_train), table.slice(n_train)
    with tempfile.TemporaryDirectory() as temporary:
        source, path = f"{temporary}/train.parquet", f"{temporary}/model"
        pq.write_table(train.append_column(chosen.target, pa.array(target.values[:n_train])), source)
        request = FitRequest(
            source=source,
            target=chosen.target,
            save_model=path,
            task=TaskName(target.task),
            budget=budget,
            seed=SEED,
        )
        began = time.perf_counter()
        fit(request, Reporter(quiet=True))
        seconds = time.perf_counter() - began
        model = load(path)
    truth = target.values[n_train:]
    losses, intervals = {}, {}
    losses["auto"], intervals["auto"] = score(model, new, target, truth)
    for name in SAVED:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            single = build_predictor(name, target.task, random_state=SEED).fit(train, target.values[:n_train])
            losses[name], intervals[name] = score(single, new, target, truth)
    best = min(SAVED, key=lambda name: losses[name].mean())
    gain = losses[best] - losses["auto"]
    return {
        "task": target.task,
        "mechanism": chosen.mechanism,
        "n_train": n_train,
        "n_new": len(truth),
        "seconds": seconds,
        "class": type(model).__name__,
        "weights": getattr(model, "weights_", {}),
        "losses": {name: float(loss.mean()) for name, loss in losses.items()},
        "best_single": best,
        "gain": float(gain.mean()),
        "standard_error": standard_error(gain),
        "intervals": intervals if target.task == "regression" else {},
    }


def score(
    model: Any, new: pa.Table, target: Target, truth: np.ndarray
) -> tuple[np.ndarray, dict[str, float]]:
    """The losses of new rows, and for numbers the coverage and the mean width of intervals."""
    losses = prediction_losses(predict_codes(model, new, target), target, truth)
    if target.task != "regression":
        return losses, {}
    low, high = model.predict_interval(new, level=LEVEL)
    covered = float(np.mean((low <= truth) & (truth <= high)))
    return losses, {"coverage": covered, "width": float(np.mean(high - low))}


def make_table(content: dict[str, Any]) -> str:
    """The table of the guide, and a sentence on where it comes from."""
    lines = ["| table | saved | loss | best single method | its loss | lower by | coverage | width |"]
    lines.append("|---|---|---|---|---|---|---|---|")
    for name, one in content["tables"].items():
        shares = sorted(one["weights"].items(), key=lambda item: -item[1])
        saved = ", ".join(f"{weight:.0%} {member}" for member, weight in shares) or f"`{one['class']}`"
        best, losses, found = one["best_single"], one["losses"], one["intervals"]
        cells = [f"{name} ({one['mechanism']})", saved, f"{losses['auto']:.4g}", best, f"{losses[best]:.4g}"]
        cells.append(f"{one['gain']:.2g} ± {one['standard_error']:.2g}")
        cells.append(f"{found['auto']['coverage']:.3f}" if found else "")
        cells.append(f"{found['auto']['width'] / found[best]['width']:.2f}" if found else "")
        lines.append(f"| {' | '.join(cells)} |")
    ahead = sum(one["gain"] >= -one["standard_error"] for one in content["tables"].values())
    lines.append(
        f"\nThe saved predictor is better than the best single method, or worse by at most one standard "
        f"error, on {ahead} of {len(content['tables'])} tables. Each choice had {content['budget']:g} "
        f"seconds. The results were produced by `python benchmarks/fit_auto.py` at commit "
        f"{content['provenance']['commit'][:7]}."
    )
    return "\n".join(lines)


def main() -> None:
    """Measures all tables, prints a line for each, and stores the result if none is left out."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--budget", type=float, default=BUDGET, help="seconds for each choice")
    parser.add_argument("--only", default="", help="names of tables, with commas; then nothing is stored")
    arguments = parser.parse_args()
    folder = Path(os.environ["HALFSEEN_DATA"])
    names = [name for name in arguments.only.split(",") if name] or list(CHOSEN)
    content: dict[str, Any] = {"provenance": provenance(), "budget": arguments.budget, "tables": {}}
    for name in names:
        one = content["tables"][name] = measure(CHOSEN[name], folder, arguments.budget)
        print(name, one["class"], one["weights"], one["losses"], one["intervals"], flush=True)
        print(f"{name}: {one['gain']:.4g} ± {one['standard_error']:.2g}, {one['seconds']:.0f} s", flush=True)
    if len(names) == len(CHOSEN):
        store_with_table("fit_auto", content, PAGE, make_table(content))


if __name__ == "__main__":
    main()
