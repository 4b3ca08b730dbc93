"""The service of the guide answers as its models do, from many threads, and refuses wrong rows by name."""

import importlib.util
import json
import math
import re
import socket
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import halfseen

pytest.importorskip("fastapi", reason="fastapi is not installed: pip install 'halfseen[serve]'")
uvicorn = pytest.importorskip("uvicorn", reason="uvicorn is not installed: pip install 'halfseen[serve]'")

FILE = Path(__file__).resolve().parents[2] / "examples" / "service.py"


@pytest.fixture(scope="module")
def penguins():
    return halfseen.datasets.load_penguins("pyarrow")


@pytest.fixture(scope="module")
def models(penguins):
    known = penguins.filter(penguins["body_mass_g"].is_valid())
    inputs = known.drop_columns(["body_mass_g"])
    predictor = halfseen.BoostingRegressor(random_state=0).fit(inputs, known["body_mass_g"].to_numpy())
    return halfseen.GaussianImputer(random_state=0).fit(penguins), predictor


@pytest.fixture(scope="module")
def ask(models):
    """Posts rows to a running service; returns the status and the answer."""
    spec = importlib.util.spec_from_file_location("service", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(module.make_service(*models), log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    address = f"http://127.0.0.1:{listening.getsockname()[1]}"
    while not server.started and thread.is_alive():
        time.sleep(0.01)

    def post(path, rows):
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(address + path, json.dumps(rows).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    yield post
    server.should_exit = True
    thread.join()
    listening.close()


@pytest.fixture(scope="module")
def rows(penguins):
    return penguins.slice(0, 32).to_pylist()


def without_mass(rows):
    return [{name: value for name, value in row.items() if name != "body_mass_g"} for row in rows]


def test_a_batch_is_imputed_and_predicted_as_the_models_do(ask, models, penguins, rows):
    imputer, predictor = models
    assert ask("/impute", rows) == (200, imputer.transform(penguins).slice(0, 32).to_pylist())
    status, predicted = ask("/predict", without_mass(rows))
    expected = predictor.predict(penguins.slice(0, 32).drop_columns(["body_mass_g"]))
    assert (status, predicted) == (200, pytest.approx(expected.tolist()))


def test_sixteen_threads_get_the_answers_of_one(ask, rows):
    def both(row):
        return ask("/impute", [row]), ask("/predict", without_mass([row]))

    alone = [both(row) for row in rows]
    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(both, rows * 4)) == alone * 4


def test_an_absent_column_is_missing(ask):
    _, (row,) = ask("/impute", [{"species": "Gentoo"}])
    assert row["species"] == "Gentoo"
    assert math.isfinite(row["body_mass_g"])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"spezies": "Gentoo"}], "Row 0 has a column 'spezies', which the model does not know"),
        ([{"year": "soon"}], "Column 'year' contained numbers .* now it contains 'soon'"),
        ([{"year": 2007}, {"year": "soon"}], "different types"),
        ([], "at least 1 item"),
    ],
)
def test_wrong_rows_are_refused_by_name(ask, rows, message):
    status, answer = ask("/impute", rows)
    assert status == 422
    assert re.search(message, str(answer["detail"]))


@pytest.mark.slow
def test_memory_stays_the_same_over_ten_thousand_answers(models, penguins):
    psutil = pytest.importorskip("psutil")
    imputer, predictor = models
    rows = [penguins.slice(start, 1) for start in range(50)]
    inputs = [row.drop_columns(["body_mass_g"]) for row in rows]

    def answer(n_calls):
        for call in range(n_calls // 2):
            imputer.transform(rows[call % 50])
            predictor.predict(inputs[call % 50])

    answer(2000)  # caches of the libraries are filled
    before = psutil.Process().memory_info().rss
    answer(10_000)
    assert psutil.Process().memory_info().rss - before < 8 * 2**20  # less than a kilobyte for each call


@pytest.mark.slow
def test_default_models_load_within_two_seconds_of_processor_time(models, penguins, tmp_path):
    known = penguins.filter(penguins["body_mass_g"].is_valid())
    inputs, mass = known.drop_columns(["body_mass_g"]), known["body_mass_g"].to_numpy()
    default = [halfseen.AutoImputer(random_state=0).fit(penguins)]  # of `halfseen impute`
    default += [halfseen.AveragingRegressor(random_state=0).fit(inputs, mass)]  # of `halfseen fit`
    for number, model in enumerate([*models, *default]):
        model.save(tmp_path / f"{number}.half")
        started = time.process_time()
        halfseen.load(tmp_path / f"{number}.half")
        assert time.process_time() - started < 2.0, type(model).__name__
