"""The parts of tools/release.py that need no network; `make release` runs the whole."""

import importlib.util
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def release():
    spec = importlib.util.spec_from_file_location("release", ROOT / "tools" / "release.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["release"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules["release"]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "changelog.d").mkdir()
    (tmp_path / "changelog.d" / "README.md").write_text("How to write fragments.")
    (tmp_path / "changelog.d" / "b.added.md").write_text("A reader of\ntables.\n")
    (tmp_path / "changelog.d" / "a.added.md").write_text("An imputer.\n")
    (tmp_path / "changelog.d" / "c.fixed.md").write_text("A defect.\n")
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## [Unreleased]\n\nSee changelog.d.\n")
    return tmp_path


def test_fragments_are_gathered_by_kind_and_removed(release, folder):
    release.gather_changes(folder, "0.1.0", "2026-11-18")
    assert (folder / "CHANGELOG.md").read_text() == (
        "# Changelog\n\n## [Unreleased]\n\nNothing yet.\n\n## [0.1.0] - 2026-11-18\n\n"
        "### Added\n\n- An imputer.\n- A reader of tables.\n\n### Fixed\n\n- A defect.\n"
    )
    assert [path.name for path in (folder / "changelog.d").iterdir()] == ["README.md"]


def test_older_versions_stay_below_a_new_one(release, folder):
    release.gather_changes(folder, "0.1.0", "2026-11-18")
    first = (folder / "CHANGELOG.md").read_text()
    (folder / "changelog.d" / "d.changed.md").write_text("A default.\n")
    release.gather_changes(folder, "0.2.0", "2027-01-01")
    second = (folder / "CHANGELOG.md").read_text()
    assert second.index("## [0.2.0]") < second.index("## [0.1.0]")
    assert second.endswith(first[first.index("## [0.1.0]") :])
    with pytest.raises(release.ReleaseError, match="nothing to release"):
        release.gather_changes(folder, "0.3.0", "2027-01-02")


def test_every_dependency_of_users_has_a_lower_bound(release):
    pins = release.lower_bounds(ROOT)
    named = [pin.split("==")[0] for pin in pins]
    assert len(named) == len(set(named))
    assert set(named) >= {
        "numpy",
        "scikit-learn",
        "pyarrow",
        "jinja2",
        "ray",
        "distributed",
        "pandas",
        "polars",
    }
    assert "torch" not in named


def test_each_extra_of_users_is_tried_alone_and_with_the_oldest_dependencies(release):
    tried = release.environments(["3.11", "3.12"])
    first = [one for one in tried if one.python == "3.11"]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    of_users = set(extras) - {"serve", "bench", "peers", "test", "check", "docs", "dev"}  # for development
    for oldest in (False, True):
        tried_so = [one for one in first if one.oldest is oldest]
        assert {one.extras[0] for one in tried_so if len(one.extras) == 1} == of_users
        assert {one.frames for one in tried_so if not one.extras} == {(), ("pandas",), ("polars",)}
        assert set(tried_so[-1].extras) == of_users
    others = [one for one in tried if one.python == "3.12"]
    assert [set(one.extras) for one in others] == [set(), of_users]
    assert not any(one.oldest for one in others)
    assert str(first[1]) == "Python 3.11, extras cli, newest dependencies"


def test_uv_takes_wheels_from_where_pip_does(release):
    given = {"PIP_FIND_LINKS": "/a /b", "PYTHONPATH": "/c", "HOME": "/d"}
    assert release.uv_settings(given) == {"PIP_FIND_LINKS": "/a /b", "HOME": "/d", "UV_FIND_LINKS": "/a,/b"}
    assert release.uv_settings({**given, "UV_FIND_LINKS": "/e"})["UV_FIND_LINKS"] == "/e"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({}, None),
        ({"remove": "halfseen/py.typed"}, r"missing \['halfseen/py.typed'\]"),
        ({"add": "tests/test_a.py"}, r"not wanted \['tests/test_a.py'\]"),
        ({"licence": "MIT"}, "states the licence 'MIT'"),
    ],
)
def test_artefacts_with_wrong_contents_are_refused(release, tmp_path, changed, message):
    names = {*release.NEEDED, "halfseen-1.0.dist-info/licenses/LICENSE"} - {changed.get("remove")}
    names |= {changed["add"]} if "add" in changed else set()
    licence = changed.get("licence", "BSD-3-Clause")
    wheel, sdist = tmp_path / "halfseen.whl", tmp_path / "halfseen.tar.gz"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in names:
            archive.writestr(name, "")
        text = f"Metadata-Version: 2.4\nName: halfseen\nVersion: 1.0\nLicense-Expression: {licence}\n"
        archive.writestr("halfseen-1.0.dist-info/METADATA", text)
    (tmp_path / "empty").touch()
    with tarfile.open(sdist, "w:gz") as archive:
        for name in [*(f"src/{one}" for one in release.NEEDED), "LICENSE", "CHANGELOG.md", "README.md"]:
            archive.add(tmp_path / "empty", f"halfseen-1.0/{name}")
    if message is None:
        release.check_contents(wheel, sdist, "1.0")
        return
    with pytest.raises(release.ReleaseError, match=message):
        release.check_contents(wheel, sdist, "1.0")


def test_a_version_without_stored_models_is_refused(release, tmp_path):
    with pytest.raises(release.ReleaseError, match=r"no models are stored for 1\.0"):
        release.check_stored_models(tmp_path, "1.0")
    (tmp_path / "tests" / "model_files" / "1.0").mkdir(parents=True)
    (tmp_path / "tests" / "model_files" / "1.0" / "mean.half").touch()
    release.check_stored_models(tmp_path, "1.0")


def test_this_python_is_found_and_an_absent_one_is_not(release):
    assert release.find_python(f"{sys.version_info.major}.{sys.version_info.minor}") == sys.executable
    assert release.find_python("3.99") is None
