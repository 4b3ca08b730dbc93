"""A web service that imputes and predicts rows: ``python examples/service.py imputer.half predictor.half``.

Models are loaded once. Fitted models are not changed by answering, so all threads share them. Rows are JSON
objects; null and absent keys are missing values.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
from fastapi import Body, FastAPI, HTTPException

import halfseen

Row = dict[str, float | int | bool | str | None]
Rows = Annotated[list[Row], Body(min_length=1, max_length=10_000)]  # larger tables: halfseen impute


def read_rows(rows: Sequence[Row], columns: Sequence[str]) -> pa.Table:
    """Returns rows as a table with the columns of a model; raises an error that names an unknown column."""
    known = set(columns)
    for number, row in enumerate(rows):
        unknown = sorted(row.keys() - known)
        if unknown:
            raise HTTPException(
                422, f"Row {number} has a column {unknown[0]!r}, which the model does not know."
            )
    try:
        return pa.table({name: pa.array([row.get(name) for row in rows]) for name in columns})
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:  # numbers and texts in one column
        raise HTTPException(422, f"A column has values of different types: {error}") from error


def make_service(imputer: Any, predictor: Any) -> FastAPI:
    """Returns the service of a fitted imputer and a fitted predictor."""
    service = FastAPI(title="halfseen")
    of_imputer, of_predictor = list(imputer.feature_names_in_), list(predictor.feature_names_in_)

    # Functions that are not `async` run in a pool of threads, so that one slow request does not block others.
    @service.post("/impute")
    def impute(rows: Rows) -> list[Row]:
        table = read_rows(rows, of_imputer)
        try:
            return list(imputer.transform(table).to_pylist())
        except ValueError as error:  # such as a text in a numeric column; the message names column and value
            raise HTTPException(422, str(error)) from error

    @service.post("/predict")
    def predict(rows: Rows) -> list[float | str]:
        table = read_rows(rows, of_predictor)
        try:
            return list(predictor.predict(table).tolist())
        except ValueError as error:
            raise HTTPException(422, str(error)) from error

    return service


def main() -> None:
    """Loads the models and serves them on this computer."""
    import uvicorn

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("imputer", type=Path, help="a model file of an imputer")
    parser.add_argument("predictor", type=Path, help="a model file of a predictor")
    parser.add_argument("--port", type=int, default=8000)
    given = parser.parse_args()
    service = make_service(halfseen.load(given.imputer), halfseen.load(given.predictor))
    uvicorn.run(service, host="127.0.0.1", port=given.port, log_level="warning")


if __name__ == "__main__":
    main()
