"""How much work a choice among imputers may take, planned from the size of the table alone.

The clock decides nothing here. The cost of a candidate is estimated in units of about a second of one
processor core, by the number of rows and columns, and candidates take part as long as their costs together
stay within what the table is worth: a table in which few cells are missing is worth little work. The same
table is therefore treated in the same way on every computer, whatever else it is doing.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from halfseen.auto.hiding import MAX_MASKS

LIMITED_CELLS = 5_000_000  # of a table, from which there is a time limit by default
GENEROUS_SECONDS = 1_800.0  # this limit; a guess: planned work ends long before it

# Measured on one core, to about a third, on tables of 500 to 2,000 rows and 8 to 30 columns.
CIRCUIT_STEP, CIRCUIT_COLUMN = 2.5e-3, 2.2e-4  # seconds of a step, and more for each column
CIRCUIT_ANSWER = 5e-5  # seconds for each cell of a row with hidden cells
TREES_COLUMN = 0.1  # seconds of the trees of a column in one round
TREES_ROWS = 4_000  # rows by which the time for trees doubles
LATENT_STEP = 7e-3  # seconds of a training step of a deep latent-variable model
LATENT_ANSWER = 3e-4  # seconds for each cell of an incomplete row
CELL = 3e-5  # seconds for each cell, of a mixture

LEAST_WORK, MOST_WORK, LARGE_WORK = 1.0, 9.0, 60.0  # units: of a table with few missing cells, of others
LARGE_CELLS = 40_000  # of a table, above which more work is worthwhile
CELLS_PER_UNIT = 100  # missing cells that are worth one unit of work; a guess
ASSUMED_SHARE = 0.1  # of cells that will be missing in new rows, if none is missing in `fit`; a guess

ROW_EPOCHS = 600_000  # rows times epochs of a circuit; a guess
FEWEST_EPOCHS, MOST_EPOCHS = 4, 30
MAX_TRAINED_ROWS = 100_000  # of models that are trained by gradients; a guess
QUICK = ("mean", "gaussian")  # candidates that are always compared, and always fitted to all rows
ALL_ROWS = (*QUICK, "circuit")  # candidates that are fitted to all rows of a large table
REFITTED = (*QUICK, "mixture", "trees")  # candidates that are fitted again, with the hidden cells
COSTLY = ("trees", "circuit")  # candidates of which that with less weight may not be fitted again
REPLACED = {"mixture": "circuit"}  # the former gained little beside the latter on four tables; no stored run
N_LATENT_STEPS = 5_000  # of two initialisations


@dataclass(frozen=True)
class WorkPlan:
    """The work for a table of a given size."""

    # The size of the table, and its missing cells.
    n_rows: int
    n_columns: int
    n_missing: int
    n_compared: int  # the number of rows on which candidates are compared

    @property
    def allowance(self) -> float:
        """The work that the table is worth, in units."""
        n_cells = self.n_rows * self.n_columns
        worth = (self.n_missing or ASSUMED_SHARE * n_cells) / CELLS_PER_UNIT
        return min(max(worth, LEAST_WORK), LARGE_WORK if n_cells > LARGE_CELLS else MOST_WORK)

    @property
    def default_seconds(self) -> float:
        """The time limit if the user sets none: infinite unless the table is large."""
        return GENEROUS_SECONDS if self.n_rows * self.n_columns >= LIMITED_CELLS else math.inf

    def n_masks(self, names: Sequence[str]) -> int:
        """Returns the largest number of sets of hidden cells: as many as candidates can be fitted for.

        Examples
        --------
        >>> WorkPlan(300, 5, 450, 300).n_masks(["mean", "trees"])
        3
        """
        refits = sum(self.fit_cost(name) for name in names if not self.is_reused(name))
        of_mask = sum(self.fit_cost(name) for name in names)
        affordable = (self.allowance - refits) / of_mask if of_mask else MAX_MASKS
        return int(min(max(affordable, 1), MAX_MASKS))

    def cost(self, name: str) -> float:
        """Returns the units that a candidate takes for one set of hidden cells and, if so planned, a refit.

        Examples
        --------
        >>> plan = WorkPlan(1_000, 20, 6_000, 1_000)
        >>> plan.cost("mean"), round(plan.cost("mixture"), 3)
        (0.0, 1.2)
        """
        return self.fit_cost(name) * (1 if self.is_reused(name) else 2)

    def fit_cost(self, name: str) -> float:
        """Returns the units that one fit of a candidate to the compared rows takes, with its answers."""
        n, d = self.n_compared, self.n_columns
        answered = self.n_missing / max(1, self.n_rows) * min(self.n_rows, MAX_TRAINED_ROWS)
        costs = {
            "mean": 0.0,
            "gaussian": 0.0,
            "mixture": CELL * n * d,
            "circuit": MOST_EPOCHS * max(16, n / 512) * (CIRCUIT_STEP + CIRCUIT_COLUMN * d)
            + CIRCUIT_ANSWER * n * d,
            "trees": TREES_COLUMN * d * (1 + n / TREES_ROWS),
        }
        latent = N_LATENT_STEPS * LATENT_STEP + LATENT_ANSWER * (answered + n * d)
        return costs.get(name, latent)

    def admitted(self, names: Sequence[str]) -> list[str]:
        """Returns the candidates that take part: in their order, as long as the allowance lasts.

        A candidate that is too costly does not keep cheaper ones behind it from taking part. One that another
        replaces takes part only without it.
        """
        found: list[str] = []
        spent = 0.0
        for name in names:
            cost = self.cost(name)
            if REPLACED.get(name) in found:
                continue
            if name in QUICK or spent + cost <= self.allowance:
                found.append(name)
                spent += cost
        return found

    def settings(self, name: str, n_rows: int) -> dict[str, Any]:
        """Returns the parameters of a candidate that is fitted to a number of rows."""
        by_name: Mapping[str, dict[str, Any]] = {
            "circuit": {"max_epochs": max(FEWEST_EPOCHS, min(MOST_EPOCHS, ROW_EPOCHS // max(1, n_rows)))},
            "trees": {"n_rounds": 1, "learning_rate": 0.3, "max_trees": 20, "max_leaf_nodes": 8},
        }
        return by_name.get(name, {})

    def is_reused(self, name: str) -> bool:
        """Whether the fit of the comparison imputes the table, rather than one that has seen all cells.

        It has seen all rows then, and all cells but the hidden ones. This halves the work of the models that
        take the longest. Others are fitted again, because without these cells they impute clearly worse, and
        so is a circuit if the work for it and for trees permits it.
        """
        if self.n_compared < self.n_rows or name in REFITTED:
            return False
        twice = 2 * (self.fit_cost("trees") + self.fit_cost("circuit"))
        return name != "circuit" or twice > self.allowance

    def refitted(self, names: Sequence[str]) -> set[str]:
        """Returns which of the chosen candidates, those with the largest weights first, are fitted again.

        Trees and circuits are, the first of them always, as long as the allowance lasts; others as planned.
        """
        found = {name for name in names if name not in COSTLY and not self.is_reused(name)}
        if self.n_compared < self.n_rows:
            return found | set(names)
        left = self.allowance - sum(self.fit_cost(name) for name in COSTLY)
        for position, name in enumerate(one for one in names if one in COSTLY):
            cost = self.fit_cost(name)
            if position == 0 or cost <= left:
                found.add(name)
                left -= cost
        return found

    def fitted_rows(self, name: str) -> int:
        """Returns the number of rows to which a chosen candidate is fitted."""
        return self.n_rows if name in ALL_ROWS else min(self.n_rows, MAX_TRAINED_ROWS)
