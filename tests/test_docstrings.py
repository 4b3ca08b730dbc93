"""Docstrings of public classes and functions: complete parameters, plain first lines, the field's terms."""

import inspect
import re
from pathlib import Path

import pytest

from halfseen import missingness
from halfseen.base.catalogue import CATALOGUE

ESTIMATORS = [pytest.param(method.estimator, id=method.class_name) for method in CATALOGUE]
MECHANISMS = [
    pytest.param(getattr(missingness, name), id=name)
    for name in missingness.__all__
    if isinstance(getattr(missingness, name), type)
]
PRIVATE_WORDS = (
    r"\b(holes?|hides? itself|hide themselves|tells?|told|anew|laws?|mends?|fences?|so many|go(es)? with)\b"
)
ROOT = Path(__file__).parents[1]
FOLDERS = (".", "guide", "migration", "examples")
PAGES = [
    ROOT / "README.md",
    *(
        page
        for folder in (".", "guide", "migration", "examples")
        for page in (ROOT / "docs" / folder).glob("*.md")
    ),
    *(ROOT / "src" / "halfseen" / "report" / "templates").glob("*.html.jinja"),
]


def parameters(doc):
    """Returns the entries of the section on parameters: names and types with defaults."""
    section = re.search(r"Parameters\n-+\n(.*?)(?=\n\n\S|\Z)", inspect.cleandoc(doc), flags=re.DOTALL)
    return re.findall(r"^(\w+(?:, \w+)*) : (.+)$", section.group(1), flags=re.MULTILINE) if section else []


def written(default):
    """Returns how a default may be written in a docstring."""
    if default is None:
        return ("optional", "default=None")
    shown = f'"{default}"' if isinstance(default, str) else repr(default)
    short = f"{default:.0e}".replace("e-0", "e-") if isinstance(default, float) else shown
    return f"default={shown}", f"default={short}"


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_an_estimator_documents_every_parameter_once_with_its_default(cls):
    entries = parameters(cls.__doc__)
    signature = inspect.signature(cls).parameters
    assert sorted(entry for entry, _ in entries) == sorted(signature)
    for entry, kind in entries:
        assert kind.endswith(written(signature[entry].default)), f"{cls.__name__}.{entry}: {kind}"


@pytest.mark.parametrize("cls", [*ESTIMATORS, *MECHANISMS])
def test_docstrings_of_a_public_class_avoid_private_words(cls):
    members = [member for key, member in vars(cls).items() if not key.startswith("_")]
    docs = [cls.__doc__, *(inspect.getdoc(member) for member in members)]
    found = [re.search(PRIVATE_WORDS, doc) for doc in docs if doc]
    assert not any(found), [match.group() for match in found if match]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_for_users_avoid_private_words(page):
    prose = re.sub(r"(?ms)^```.*?^```|`[^`]*`", "", page.read_text(encoding="utf-8"))
    assert re.findall(f".*{PRIVATE_WORDS}.*", prose) == []


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_an_estimator_states_its_assumption_about_missingness(cls):
    doc = " ".join(cls.__doc__.split())
    stated = r"\((MAR|MCAR|MNAR)\)|assumption about the missingness|missing (completely |not )?at random"
    assert re.search(f"{stated}|at random or not", doc)
