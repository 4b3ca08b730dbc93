"""The repository keeps its own promises: public names, change fragments, pins."""

import ast
import importlib
import importlib.metadata
import inspect
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

import halfseen

ROOT = Path(__file__).parents[1]
KINDS = "added|changed|deprecated|removed|fixed|security"
FRAGMENT = re.compile(rf"(\d+|[a-z][a-z0-9]*(-[a-z0-9]+)*)\.({KINDS})\.md")


FIRST_DAY = 45
PACKAGES = [
    importlib.import_module(f"halfseen.{path.parent.name}")
    for path in sorted((ROOT / "src" / "halfseen").glob("*/__init__.py"))
]
PUBLIC = {f"halfseen.{name}": getattr(halfseen, name) for name in halfseen.__all__} | {
    f"{package.__name__}.{name}": getattr(package, name)
    for package in PACKAGES
    for name in getattr(package, "__all__", ())
}


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_exists_and_is_documented(name):
    thing = PUBLIC[name]
    if inspect.isclass(thing) or inspect.isroutine(thing) or inspect.ismodule(thing):
        assert inspect.getdoc(thing), f"{name} has no docstring"


@pytest.mark.parametrize("name", [name for name, thing in PUBLIC.items() if inspect.isclass(thing)])
def test_a_public_method_is_documented(name):
    for method, function in inspect.getmembers(PUBLIC[name], inspect.isfunction):
        if not method.startswith("_") and function.__module__.startswith("halfseen."):
            assert inspect.getdoc(function), f"{name}.{method} has no docstring"


def test_the_package_itself_has_the_names_of_the_first_day_only():
    assert len(halfseen.__all__) <= FIRST_DAY


@pytest.mark.slow
@pytest.mark.parametrize("package", [package for package in PACKAGES if hasattr(package, "__all__")])
def test_a_name_of_a_sub_package_is_listed_before_it_is_used_and_imported_when_it_is(package):
    code = (
        f"import {package.__name__} as package; names = dir(package); "
        "assert set(package.__all__) <= set(names), names; "
        "assert not [name for name in package.__all__ if not hasattr(package, name)]; "
        f"from {package.__name__} import *"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", sorted(halfseen._IN_PACKAGES.keys() - {*halfseen.__all__}))
def test_the_error_for_a_name_of_a_sub_package_says_where_it_is(name):
    with pytest.raises(AttributeError, match=rf"halfseen\.{name} is in halfseen\.") as error:
        getattr(halfseen, name)
    statement = str(error.value).split(": ")[1]
    scope = {}
    exec(statement, scope)
    assert scope[name].__name__ == name


HEAVY = ("torch", "sklearn", "scipy", "pyarrow", "numpy", "pandas", "polars")


@pytest.mark.parametrize(
    "code",
    [
        "import halfseen; dir(halfseen)",
        "from halfseen.cli.main import main; main(['--version'])",
        "from halfseen.cli.main import main; main(['--help'])",
        "from halfseen.cli.main import main; main(['impute', '--help'])",
        "from halfseen.cli.main import main; main(['compare', '--help'])",
    ],
)
def test_the_version_and_help_load_no_heavy_package(code):
    code = f"import sys; {code}; sys.exit(str([name for name in {HEAVY} if name in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == "[]"


def test_a_public_name_is_imported_on_first_use_and_listed_before():
    code = (
        "import sys, halfseen; assert set(halfseen.__all__) <= set(dir(halfseen)); "
        "names = [name for name in halfseen.__all__ if not hasattr(halfseen, name)]; "
        "assert not names, names; assert 'torch' in sys.modules; "
        "assert halfseen.diagnosis.little.little_test; from halfseen import *; GaussianImputer()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with pytest.raises(AttributeError, match="module 'halfseen' has no attribute 'Nothing'"):
        halfseen.Nothing  # noqa: B018


def test_touching_every_public_name_moves_no_global_generator_and_loads_no_plotting():
    code = (
        "import random, sys, numpy, torch; random.seed(0); numpy.random.seed(0); torch.manual_seed(0); "
        "expected = random.Random(0).random(), numpy.random.RandomState(0).random(); "
        "state = torch.get_rng_state(); "
        "import halfseen; [getattr(halfseen, name) for name in halfseen.__all__]; "
        "[method.estimator for method in halfseen.base.catalogue.CATALOGUE]; "
        "assert (random.random(), numpy.random.random()) == expected; "
        "assert torch.equal(torch.get_rng_state(), state); "
        "sys.exit(str([name for name in ('matplotlib', 'jinja2', 'typer') if name in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == "[]"


def test_every_public_name_is_in_the_reference():
    listed = (ROOT / "docs" / "api" / "index.rst").read_text(encoding="utf-8")
    names = {name.removeprefix("halfseen.") for name, thing in PUBLIC.items() if not inspect.ismodule(thing)}
    again = {name for name in names if name.split(".")[-1] in halfseen.__all__ and "." in name}
    missing = [name for name in names - again if not re.search(rf"^ +{name}$", listed, flags=re.MULTILINE)]
    assert sorted(missing) == []


@pytest.mark.parametrize("package", [halfseen, *PACKAGES])
def test_public_names_are_listed_once(package):
    names = getattr(package, "__all__", [])
    assert len(names) == len(set(names))


def test_the_version_is_the_installed_one():
    assert halfseen.__version__ == importlib.metadata.version("halfseen")


def test_the_citation_file_names_the_version_and_five_papers():
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {halfseen.__version__}\n" in text
    assert len(re.findall(r"^  - type: ", text, re.MULTILINE)) == 5
    assert len(re.findall(r"^    url: ", text, re.MULTILINE)) == 5


def test_change_fragments_are_named_by_topic_and_kind():
    fragments = [path for path in (ROOT / "changelog.d").iterdir() if path.name != "README.md"]
    wrong = [path.name for path in fragments if not FRAGMENT.fullmatch(path.name)]
    assert not wrong, f"name these <topic>.<{KINDS}>.md, see changelog.d/README.md: {wrong}"
    empty = [path.name for path in fragments if not path.read_text(encoding="utf-8").strip()]
    assert not empty, f"these say nothing: {empty}"


def test_constraints_are_exact_pins_without_hosts_or_paths():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    wrong = [pin for pin in pins if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", pin)]
    assert not wrong, f"not of the form name==version: {wrong}"
    assert "torch==2.13.0" in pins


def test_every_dependency_is_explained():
    explained = (ROOT / "docs" / "design" / "dependencies.md").read_text(encoding="utf-8")
    for requirement in importlib.metadata.requires("halfseen") or []:
        name = re.match(r"[A-Za-z0-9._-]+", requirement)[0]
        assert name == "halfseen" or name in explained, f"docs/design/dependencies.md says nothing of {name}"


def test_the_gold_files_exist():
    principles = (ROOT / "docs" / "design" / "principles.md").read_text(encoding="utf-8")
    gold = re.findall(r"^\d\. `([^`]+)`", principles, flags=re.MULTILINE)
    assert len(gold) == 5
    assert [path for path in gold if not (ROOT / path).is_file()] == []


def test_tables_in_pages_are_those_of_the_results():
    command = [sys.executable, str(ROOT / "docs" / "fill_tables.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"run python docs/fill_tables.py: {done.stdout}{done.stderr}"


DEEPEST_CLASS = 4


def depth_of_inheritance(cls):
    """Count the classes of the library on the longest way from a class up to one that has none above it."""
    above = [base for base in cls.__bases__ if base.__module__.startswith("halfseen.")]
    return max((1 + depth_of_inheritance(base) for base in above), default=0)


@pytest.mark.parametrize("name", [name for name, thing in PUBLIC.items() if inspect.isclass(thing)])
def test_a_public_class_has_at_most_four_classes_of_the_library_above_it(name):
    assert depth_of_inheritance(PUBLIC[name]) <= DEEPEST_CLASS, PUBLIC[name].__mro__


def test_the_depth_of_inheritance_is_that_of_the_longest_way_up():
    base = halfseen.base.imputer.BaseImputer  # TableEstimator, Saveable
    one = type("One", (base,), {"__module__": "halfseen.one"})
    assert depth_of_inheritance(base) == 2
    assert depth_of_inheritance(type("Two", (dict, one), {"__module__": "halfseen.two"})) == 4


LONGEST_FUNCTION = 57
LONGEST_MODULE = 600
SOURCES = [path for folder in ("src", "papers", "benchmarks") for path in (ROOT / folder).rglob("*.py")]


def count_code_lines(function):
    """Count the lines of a function without its docstring."""
    n_lines = function.end_lineno - function.lineno + 1
    if ast.get_docstring(function) is None:
        return n_lines
    docstring = function.body[0]
    return n_lines - (docstring.end_lineno - docstring.lineno + 1)


def find_functions(node):
    """Yield the functions of a module or class, and those within these."""
    for statement in node.body:
        if isinstance(statement, ast.FunctionDef):
            yield statement
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            yield from find_functions(statement)


@pytest.fixture(scope="module")
def modules():
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in SOURCES}


def test_no_function_is_longer_than_the_limit(modules):
    functions = [(path, function) for path, module in modules.items() for function in find_functions(module)]
    too_long = [
        f"{path.relative_to(ROOT)}:{function.lineno} {function.name} has {count_code_lines(function)} lines"
        for path, function in functions
        if count_code_lines(function) > LONGEST_FUNCTION
    ]
    assert len(functions) > 1000
    assert not too_long, f"functions have at most {LONGEST_FUNCTION} lines of code: {too_long}"


def test_no_module_is_longer_than_the_limit():
    paths = sorted((ROOT / "src").rglob("*.py"))
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in paths}
    too_long = [f"{path.relative_to(ROOT)}: {n}" for path, n in lengths.items() if n > LONGEST_MODULE]
    assert len(lengths) > 200
    assert not too_long, f"modules have at most {LONGEST_MODULE} lines: {too_long}"


def test_lines_of_docstrings_are_not_counted():
    lines = ["def f(a):", '    """Do.', "", "    More.", '    """', "    return a"]
    (function,) = ast.parse("\n".join(lines)).body
    assert count_code_lines(function) == 2


def test_no_two_modules_define_a_public_class_of_the_same_name(modules):
    places = defaultdict(list)
    for path, module in modules.items():
        for node in module.body:
            if isinstance(node, ast.ClassDef) and ROOT / "src" in path.parents and node.name[0] != "_":
                places[node.name].append(str(path.relative_to(ROOT)))
    assert len(places) > 250
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_no_class_has_an_alias_of_types_as_its_base():
    """NumPy 2.5 makes NDArray an alias that cannot be a base class, on Python 3.12 and newer."""
    found = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                found += [
                    f"{path.name}: {node.name}" for base in node.bases if "NDArray" in ast.unparse(base)
                ]
    assert found == []


@pytest.mark.slow
def test_every_benchmark_finds_what_it_imports():
    """As a program is run from its file, with its own folder first on the path and without the repository."""
    files = sorted((ROOT / "benchmarks").glob("*.py"))
    assert files
    names = ", ".join(file.stem for file in files)
    code = f"import sys; sys.path[0] = {str(ROOT / 'benchmarks')!r}; import {names}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
