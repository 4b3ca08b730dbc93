"""Imputation, prediction and diagnosis of tables that do not fit into memory, on one machine or a cluster.

A table is opened by `halfseen.scan` and worked off in units, which are runs of whole blocks of rows. What is
written does not depend on the engine, the number of workers, the order of units or the memory budget.
"""

from typing import TYPE_CHECKING

from halfseen._lazy import lazy_names

if TYPE_CHECKING:
    from halfseen.distributed.describing import describe
    from halfseen.distributed.fitting import fit
    from halfseen.distributed.run import WrittenFiles, impute, predict

__all__ = ["WrittenFiles", "describe", "fit", "impute", "predict"]

if not TYPE_CHECKING:  # a type checker would take any name for granted
    __getattr__, __dir__ = lazy_names(
        __name__,
        {"describing": ["describe"], "fitting": ["fit"], "run": ["WrittenFiles", "impute", "predict"]},
    )
