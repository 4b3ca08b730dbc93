"""The command `halfseen datasets`."""

import pytest


@pytest.fixture(autouse=True)
def no_folder(monkeypatch):
    monkeypatch.delenv("HALFSEEN_DATA", raising=False)


def test_all_data_sets_are_listed(run):
    code, out, err = run("datasets")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].split() == ["name", "rows", "x", "columns", "target", "missing", "licence", "present"]
    [adult] = [line for line in lines if line.startswith("adult ")]
    assert adult.split()[:6] == ["adult", "48842", "x", "16", "income", "6,465"]
    assert adult.split()[-1] == "no"
    assert "114 data sets. Set HALFSEEN_DATA, or pass --data-home" in out


def test_present_files_are_marked(run, tmp_path):
    (tmp_path / "home" / "adult").mkdir(parents=True)
    (tmp_path / "home" / "adult" / "adult.csv.gz").write_bytes(b"")
    _, out, _ = run("datasets", "--data-home", "home")
    marks = {line.split()[0]: line.split()[-1] for line in out.splitlines() if " x " in line}
    assert (marks["adult"], marks["abalone"]) == ("yes", "no")
    assert "looked for in home" in out


def test_one_data_set_is_shown(run, tmp_path, monkeypatch):
    code, out, _ = run("datasets", "mnist")
    assert code == 0
    assert "x_train 60000 x 28 x 28" in out
    assert "no. The folder of the data sets is not known" in out
    assert "halfseen.datasets.load('mnist')" in out
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "mnist.npz").write_bytes(b"something else")
    monkeypatch.setenv("HALFSEEN_DATA", str(tmp_path))
    assert "is not the file that data set 'mnist' needs" in " ".join(run("datasets", "mnist")[1].split())


def test_a_correct_file_is_reported_as_correct(run, shared_data, monkeypatch):
    assert "its checksum is correct" in run("datasets", "mice_sets/nhanes", "--data-home", shared_data)[1]


def test_an_unknown_name_is_one_line_of_error(run):
    code, out, err = run("datasets", "penguin")
    assert (code, out) == (2, "")
    assert err.startswith("halfseen: error: There is no data set 'penguin'. Did you mean penguins")
    assert len(err.splitlines()) == 1
