"""The examples of README.md and of the guide run as they stand, each page in a folder of its own."""

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import typer

from halfseen.cli.app import app

ROOT = Path(__file__).parents[1]
GUIDE = [path for path in sorted((ROOT / "docs" / "guide").glob("*.md")) if path.name != "index.md"]
MIGRATION = [path for path in sorted((ROOT / "docs" / "migration").glob("*.md")) if path.name != "index.md"]
EXAMPLES = [path for path in sorted((ROOT / "docs" / "examples").glob("*.md")) if path.name != "index.md"]
SINGLE = [ROOT / "docs" / name for name in ("getting_started.md", "cheatsheet.md")]
SLOW = ("auto.md", "latent.md")  # pages that compare methods or train networks
PAGES = [
    pytest.param(str(path.relative_to(ROOT)), marks=[pytest.mark.slow] if path.name in SLOW else [])
    for path in (*SINGLE, *GUIDE, *MIGRATION, *EXAMPLES)
]


def run_examples(page):
    """Runs the python blocks of a page in one namespace and returns it."""
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    assert blocks, f"{page} has no python example"
    namespace = {"__name__": "__page__"}
    for number, block in enumerate(blocks, start=1):
        exec(compile(block, f"{page}, example {number}", "exec"), namespace)
    return namespace


@pytest.mark.parametrize("page", PAGES)
def test_the_examples_of_a_page_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_examples(page)


def test_the_examples_of_the_readme_run_and_keep_what_it_promises(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = run_examples("README.md")
    assert not names["complete"].isna().any().any()
    assert len(names["draws"]) == 20
    assert names["same"].equals(names["complete"])


@pytest.mark.parametrize("page", EXAMPLES, ids=lambda page: page.stem)
def test_an_example_page_is_short_and_has_a_picture_and_its_links_exist(page):
    text = page.read_text(encoding="utf-8")
    assert text.count("\n") <= 60
    assert "\n![" in text
    links = re.findall(r"\]\(([^)#]+)", text)
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_readme_stays_short_and_its_links_exist():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text.count("\n") <= 150
    links = re.findall(r"\]\(([^)#]+)", text)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_a_page_names_only_make_targets_that_exist(page):
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):.*## ", makefile, flags=re.MULTILINE))
    text = (ROOT / page).read_text(encoding="utf-8")
    named = re.findall(r"(?:^ {4}|`)make ([a-z-]+)", text, flags=re.MULTILINE)
    assert named
    assert set(named) <= targets


PROSE = [ROOT / "README.md", *SINGLE, *GUIDE, *MIGRATION, *EXAMPLES, *(ROOT / "docs").glob("*.md")]


def resolve(name):
    """Imports an object by its dotted name; raises AttributeError if there is none."""
    module, _, rest = name.partition(".")
    found = importlib.import_module(module)
    for part in filter(None, rest.split(".")):
        module = f"{module}.{part}"
        if not hasattr(found, part) and importlib.util.find_spec(module) is not None:
            importlib.import_module(module)
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("page", PROSE, ids=lambda page: page.stem)
def test_what_a_page_names_exists(page):
    text = page.read_text(encoding="utf-8")
    for name in set(re.findall(r"`(halfseen(?:\.[a-zA-Z_]\w*)+)[`(]", text)):
        assert name.endswith((".half", ".halfseen")) or resolve(name) is not None, name
    options = {
        name: {option for parameter in command.params for option in parameter.opts} | {"--help"}
        for name, command in typer.main.get_command(app).commands.items()
    }
    for command, line in re.findall(r"(?<!\w)halfseen (\w+)((?: [^`\n#]*)?)", text):
        if command in options:
            assert set(re.findall(r"(?<!\S)--[a-z][\w-]*", line)) <= options[command], line


def test_the_scores_of_the_guide_exist():
    text = (ROOT / "docs" / "guide" / "evaluation.md").read_text(encoding="utf-8")
    table = text.partition("## The scores")[2].partition("\n\n")[2].partition("\n\n")[0]
    named = [
        name for line in table.splitlines()[2:] for name in re.findall(r"`([\w.]+)`", line.split("|")[4])
    ]
    assert len(named) >= 11
    assert all(callable(resolve(f"halfseen.evaluation.{name}")) for name in named)


R_PACKAGES = ("mice", "smcfcs", "survival", "survey", "mitools")
ELSEWHERE = ("micombine.cor",)  # of miceadds, which the page says


def run_r(script, folder):
    """Runs a script of R in a folder, or skips the test if R or a package that it needs is not there."""
    if shutil.which("Rscript") is None:
        pytest.skip("needs R: Rscript was not found")
    needed = ", ".join(f'"{name}"' for name in R_PACKAGES)
    asked = f"cat(setdiff(c({needed}), rownames(installed.packages())))"
    absent = subprocess.run(["Rscript", "-e", asked], capture_output=True, text=True, check=True).stdout
    if absent:
        pytest.skip(f"needs these packages of R: {absent}")
    (folder / "page.R").write_text(script, encoding="utf-8")
    return subprocess.run(["Rscript", "page.R"], cwd=folder, capture_output=True, text=True, timeout=900)


@pytest.mark.slow
def test_the_r_code_of_the_migration_page_runs(tmp_path, monkeypatch):
    text = (ROOT / "docs" / "migration" / "mice.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```(r|python)\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    [writes] = [block for language, block in blocks if language == "python" and "to_csv" in block]
    exec(compile(writes, "mice.md", "exec"), {})
    code = "\n".join(block for language, block in blocks if language == "r")
    done = run_r(f"pdf(NULL)\n{code}", tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "riv" in done.stdout  # of D1


@pytest.mark.slow
def test_the_functions_of_r_in_tables_of_the_migration_page_exist(tmp_path):
    text = (ROOT / "docs" / "migration" / "mice.md").read_text(encoding="utf-8")
    cells = [line.split("|")[1] for line in text.splitlines() if line.startswith("| ")]
    named = re.findall(r"([A-Za-z][\w.]*)\(", " ".join(re.findall(r"`([^`]*)`", " ".join(cells))))
    methods = re.findall(r'`"([a-z][\w.]*)"`', text.partition("## Methods")[2].partition("## Pooling")[0])
    functions = sorted({*named, *(f"mice.impute.{method}" for method in methods)} - {*ELSEWHERE, "I"})
    assert len(functions) > 40
    names = ", ".join(f'"{name}"' for name in functions)
    libraries = "; ".join(f"library({name})" for name in R_PACKAGES)
    script = f"suppressMessages({{{libraries}}})\nfor (f in c({names})) if (!exists(f)) cat(f, '\\n')"
    done = run_r(script, tmp_path)
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr
