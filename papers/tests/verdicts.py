"""What the claims of an experiment come to if every model has a given score."""

from pathlib import Path

from papers import SCALES, Cell, Results

MET_IF_TRAINED = {"smoke": {"not testable"}, "small": {"met"}, "paper": {"met"}}
"""Claims that hold, on trained networks only."""


def outcomes(experiment, metric, worth, otherwise):
    """The set of outcomes by scale, where models score what `worth` says."""
    found = {}
    for scale in SCALES:
        cells = [
            Cell(
                cell.setting,
                cell.model,
                cell.seed,
                dict.fromkeys([metric, *experiment.metrics], worth.get(cell.model, otherwise)),
            )
            for cell in experiment.cells(scale)
        ]
        results = Results(experiment, scale, cells, {}, Path())
        found[scale] = {verdict.outcome for verdict in results.verdicts()}
    return found
