"""Drift of missingness between new rows and the rows that a saved model was fitted to."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from halfseen.data.schema import Schema
from halfseen.diagnosis.drift import RateChange, compare_rates
from halfseen.diagnosis.wording import ALPHA, share_words

SHOWN = 5


@dataclass(frozen=True)
class TrainingDrift:
    """The missing rates of new rows compared with those of the training rows of a model.

    Attributes
    ----------
    n_rows, n_training_rows : int
        The number of new rows, and of training rows.
    columns : tuple of RateChange
        The columns of the model, the largest difference first; the reference is the training table.
    """

    n_rows: int
    n_training_rows: int
    columns: tuple[RateChange, ...]

    @property
    def changed(self) -> tuple[RateChange, ...]:
        """The columns whose rates differ by more than chance: an adjusted p-value below 0.05."""
        return tuple(change for change in self.columns if change.p_adjusted < ALPHA)

    @property
    def sentence(self) -> str:
        """The notes for a user.

        Examples
        --------
        >>> changes = compare_rates(["x", "y"], [30, 0], 40, [10, 0], 40)
        >>> TrainingDrift(40, 40, changes).sentence
        'missingness differs from training: x 75.0% missing (25.0% in training)'
        """
        if not self.changed:
            return "missing rates do not differ from training by more than chance"
        shown = [
            f"{one.column} {share_words(one.rate)} missing ({share_words(one.reference_rate)} in training)"
            for one in self.changed[:SHOWN]
        ]
        more = len(self.changed) - len(shown)
        return f"missingness differs from training: {', '.join(shown)}{f' and {more} more' if more else ''}"

    def to_dict(self) -> dict[str, Any]:
        """Returns the drift as values that JSON can hold, and the sentence."""
        return {**asdict(self), "sentence": self.sentence, "n_changed": len(self.changed)}


def compare_with_training(schema: Schema, missing: Mapping[str, int], n_rows: int) -> TrainingDrift:
    """Compares missing rates with those of the training table, which the schema of a model keeps.

    Parameters
    ----------
    schema : Schema
        The schema of a fitted model.
    missing : mapping of str to int
        The number of missing values of each column of the model in the new table.
    n_rows : int
        The number of new rows.
    """
    columns = [column for column in schema if column.n_observed + column.n_missing > 0]
    training = [column.n_observed + column.n_missing for column in columns]
    changes = compare_rates(
        [column.name for column in columns],
        [missing[column.name] for column in columns],
        n_rows,
        [column.n_missing for column in columns],
        training,
    )
    return TrainingDrift(n_rows, max(training, default=0), changes)
