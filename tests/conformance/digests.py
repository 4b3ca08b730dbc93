"""Prints a digest of every answer and model file of every registered estimator, one line each.

Run ``PYTHONPATH=tests:docs python tests/conformance/digests.py > before.txt`` before code is moved and again
afterwards: the lines are equal unless an answer changed. The digests depend on the processor and on the
versions of the dependencies, so that they are compared on one machine and never stored.
"""

import hashlib
import tempfile
import warnings
from pathlib import Path

import numpy as np
from conformance.families import DATA
from conformance.registry import ESTIMATORS, OTHERS, PREDICTORS
from conformance.tables import ARRAY, NASTY, PENGUINS, hashes_of_answers


def digest(content):
    return hashlib.sha256(content).hexdigest()[:16]


def digest_of_file(estimator):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        estimator.save(path)
        return digest(path.read_bytes())


def main():
    warnings.simplefilter("ignore")
    for row in ESTIMATORS:
        for case in (ARRAY, PENGUINS, NASTY):
            table, target = case.make(), ()
            if row in PREDICTORS:
                target = (row.target(np.random.default_rng(0).normal(size=len(table))),)
            estimator = row.make(random_state=0).fit(table, *target)
            answers = digest("".join(map(str, hashes_of_answers(estimator, table))).encode())
            print(row.name, case.name, answers, digest_of_file(estimator), flush=True)
    for row in OTHERS:
        data = DATA[row.family]()
        estimator = data.fit(row.make(random_state=0))
        arrays = [np.ascontiguousarray(found) for _, found in sorted(data.ask(estimator).items())]
        answers = digest(b"".join(array.tobytes() for array in arrays))
        print(row.name, answers, digest_of_file(estimator), flush=True)


if __name__ == "__main__":
    main()
