"""How a report was made: by which command, from which file, in what time."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class RunInfo:
    """What every report shows about the run that made it.

    Parameters
    ----------
    source : str
        The name of the file that was read.
    command : str
        The command line that repeats the run.
    seconds : float
        The time that it took.
    notes : sequence of str
        Notices and warnings.
    version : str
        The version of halfseen.
    """

    source: str = "table"
    command: str = ""
    seconds: float = 0.0
    notes: Sequence[str] = ()
    version: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as values that JSON can represent."""
        return {**vars(self), "seconds": float(self.seconds), "notes": list(self.notes)}


UNKNOWN_RUN = RunInfo()
"""For summaries that are made without a command."""
