"""``halfseen describe`` of tables that are read in blocks, and need not fit into memory."""

from halfseen.cli.describe import show_results
from halfseen.cli.progress import Reporter
from halfseen.cli.requests import DescribeRequest
from halfseen.cli.sources import expand
from halfseen.cli.units import OF_WHOLE_FILES, counting, given_of, is_large, open_scan, show_stream
from halfseen.distributed.describing import describe
from halfseen.errors import TableError
from halfseen.files.writing import check_apart, check_report

_NOT_IN_BLOCKS = {
    "against": "--against", "model": "--model", "label": "--class", "sensitivity": "--sensitivity",
    "reference": "--reference", "schema": "--schema", **OF_WHOLE_FILES,
}  # fmt: skip
"""Options that need the whole table in memory, or rules of the reader of whole files."""


def is_in_blocks(request: DescribeRequest) -> bool:
    """Return whether a user asked for an engine, or one file is larger than its share of the memory."""
    asked = request.counting
    if asked.engine is not None:
        return True
    if asked.address or asked.workers:
        raise TableError("--address and --workers need --engine")
    if request.source == "-" or given_of(request, _NOT_IN_BLOCKS):
        return False
    paths = expand(request.source)
    return len(paths) == 1 and is_large(paths[0])


def describe_in_blocks(request: DescribeRequest, reporter: Reporter) -> None:
    """Describe a table without reading it into memory; see `halfseen.distributed.describe`.

    Parameters
    ----------
    request : DescribeRequest
        The table, and what is asked.
    reporter : Reporter
        The reporter of progress.
    """
    found = given_of(request, _NOT_IN_BLOCKS)
    if found:
        raise TableError(f"{_NOT_IN_BLOCKS[found[0]]} needs the whole table in memory; leave out --engine")
    if request.source == "-":
        raise TableError("--engine reads files, not standard input")
    check_report(request.report)
    check_apart({"IN": request.source}, {"--report": request.report})
    asked = request.counting
    with reporter.noting_warnings():
        if asked.engine is None:
            show_stream(expand(request.source)[0], "read in blocks", reporter)
        table = open_scan(request, reporter, None)
        with counting(reporter, "counting", table) as progress:
            diagnosis = describe(
                table, request.target, engine=str(asked.engine or "local"), address=asked.address,
                n_workers=1 if asked.engine is None else asked.workers, random_state=request.seed,
                progress=progress,
            )  # fmt: skip
    show_results(request, reporter, diagnosis, request.source)
    reporter.done()
