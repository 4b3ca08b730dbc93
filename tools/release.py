"""Makes a release: gathers the changelog, builds the wheel and the sdist, checks and installs them.

``make release`` runs it. All work happens in a copy of the files that git tracks. Only if everything passed
are the artefacts put into dist/, CHANGELOG.md written and the fragments of changelog.d removed; otherwise
nothing in the repository changes. Nothing is uploaded.
"""

import argparse
import datetime
import email.parser
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
KINDS = ("added", "changed", "deprecated", "removed", "fixed", "security")
NEEDED = (  # files that the package reads when it runs, or that its terms ask for
    "halfseen/py.typed",
    "halfseen/data/samples/penguins.csv",
    "halfseen/datasets/registry.json",
    "halfseen/report/templates/report.html.jinja",
)
FORBIDDEN = ("papers/", "tests/", "benchmarks/", "docs/", "conftest.py", "results/")
COMMAND = ("cli", "report")  # the extras that most users install
ENGINES = ("ray", "dask")  # extras for tables on several computers; the remaining extras are for development
FRAMES = ("pandas", "polars")  # read and returned where users have them; their bounds are in the extra test


class ReleaseError(Exception):
    """A step of the release failed; the message says which and why."""


@dataclass(frozen=True)
class Environment:
    """A fresh environment: a Python, the extras of halfseen, and the newest or the oldest dependencies."""

    python: str
    extras: tuple[str, ...]
    oldest: bool
    frames: tuple[str, ...] = ()  # the libraries of frames that are installed too

    def __str__(self):
        """Returns the environment in words."""
        extras = f"extras {', '.join(self.extras)}" if self.extras else "no extras"
        frames = f" with {' and '.join(self.frames)}" if self.frames else ""
        return f"Python {self.python}, {extras}{frames}, {'oldest' if self.oldest else 'newest'} dependencies"


def gather_changes(folder, version, date):
    """Moves the fragments of changelog.d into CHANGELOG.md, by kind, below a heading for the version."""
    fragments = sorted(path for path in (folder / "changelog.d").glob("*.md") if path.name != "README.md")
    if not fragments:
        raise ReleaseError("changelog.d has no fragments: there is nothing to release.")
    lines = [f"## [{version}] - {date}", ""]
    for kind in KINDS:
        of_kind = [path for path in fragments if path.name.endswith(f".{kind}.md")]
        if of_kind:
            texts = (" ".join(path.read_text(encoding="utf-8").split()) for path in of_kind)
            lines += [f"### {kind.capitalize()}", "", *(f"- {text}" for text in texts), ""]
    changelog = folder / "CHANGELOG.md"
    before, heading, after = changelog.read_text(encoding="utf-8").partition("## [Unreleased]\n")
    if not heading:
        raise ReleaseError("CHANGELOG.md has no heading '## [Unreleased]'.")
    older = after[after.index("\n## [") :].lstrip("\n") if "\n## [" in after else ""
    text = before + heading + "\nNothing yet.\n\n" + "\n".join(lines) + older
    changelog.write_text(text.rstrip("\n") + "\n", encoding="utf-8")
    for path in fragments:
        path.unlink()


def copy_tracked(target):
    """Copies the files that git tracks, as they are in the working tree."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
    for name in filter(None, listed.decode().split("\0")):
        source, copy = ROOT / name, target / name
        if source.is_file():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy)


def check_clean():
    """Raises unless the working tree is what was committed, so that a release can be traced to a commit."""
    status = subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, check=True, capture_output=True)
    if status.stdout:
        raise ReleaseError("the working tree has changes that are not committed; commit them first.")


def check_stored_models(folder, version):
    """Raises unless models of the version are stored, which all later versions must be able to load."""
    if not any((folder / "tests" / "model_files" / version).glob("*.half")):
        raise ReleaseError(
            f"no models are stored for {version}: PYTHONPATH=tests:docs python tests/model_files/stored.py"
        )


def run(*command, **settings):
    """Runs a command; its output is shown only if it fails."""
    found = subprocess.run(list(map(str, command)), capture_output=True, text=True, **settings)
    if found.returncode:
        raise ReleaseError(f"{' '.join(map(str, command))}\n{found.stdout[-4000:]}{found.stderr[-4000:]}")
    return found.stdout


def build(folder, tools):
    """Builds the sdist, and the wheel from the sdist, so that the sdist is known to be complete."""
    run(tools / "bin" / "python", "-m", "build", "--outdir", folder / "dist", folder)
    (wheel,), (sdist,) = (list((folder / "dist").glob(pattern)) for pattern in ("*.whl", "*.tar.gz"))
    run(tools / "bin" / "python", "-m", "twine", "check", "--strict", wheel, sdist)
    return wheel, sdist


def check_contents(wheel, sdist, version):
    """Raises if an artefact lacks a file that is needed, or holds tests, experiments or results."""
    with zipfile.ZipFile(wheel) as archive:
        in_wheel = archive.namelist()
        metadata = archive.read(f"halfseen-{version}.dist-info/METADATA").decode()
    with tarfile.open(sdist) as archive:
        in_sdist = [name.partition("/")[2] for name in archive.getnames()]
    parsed = email.parser.Parser().parsestr(metadata)
    if (parsed["Name"], parsed["Version"]) != ("halfseen", version):
        raise ReleaseError(f"{wheel.name} says that it is {parsed['Name']} {parsed['Version']}.")
    if parsed["License-Expression"] != "BSD-3-Clause":
        raise ReleaseError(f"{wheel.name} states the licence {parsed['License-Expression']!r}.")
    wanted = {
        wheel.name: (in_wheel, [*NEEDED, f"halfseen-{version}.dist-info/licenses/LICENSE"]),
        sdist.name: (in_sdist, [*(f"src/{name}" for name in NEEDED), "LICENSE", "CHANGELOG.md", "README.md"]),
    }
    for artefact, (names, needed) in wanted.items():
        missing = sorted(set(needed) - set(names))
        unwanted = [name for name in names if name.startswith(FORBIDDEN)]
        if missing or unwanted:
            raise ReleaseError(f"{artefact}: missing {missing}, not wanted {unwanted[:5]}.")


def lower_bounds(folder):
    """Returns pins of the dependencies that users install to the oldest versions that pyproject allows.

    torch is not among them: see `environments`.
    """
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(one for name in (*COMMAND, *ENGINES) for one in extras[name])]
    wanted += [one for one in extras["test"] if one.startswith(FRAMES)]
    pins = []
    for requirement in dict.fromkeys(wanted):
        found = re.match(r"([\w-]+)>=([\w.]+)", requirement)
        if found is None:
            raise ReleaseError(f"pyproject.toml: {requirement!r} has no lower bound.")
        if found[1] != "torch":
            pins.append(f"{found[1]}=={found[2]}")
    return pins


def find_python(version):
    """Returns the path of an interpreter, from PATH or from pyenv; None if there is none."""
    if sys.version_info[:2] == tuple(map(int, version.split("."))):
        return sys.executable
    found = shutil.which(f"python{version}")
    if found and subprocess.run([found, "--version"], capture_output=True).returncode == 0:
        return found
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    return next((str(path) for path in sorted(versions.glob(f"{version}.*/bin/python"), reverse=True)), None)


def environments(pythons):
    """Returns what is tried: no extras, each extra alone, and all; newer Pythons are tried with none and all.

    The first Python, the oldest, is tried with the oldest and with the newest dependencies; the others only
    with the newest, because the oldest were published before them. torch has the one version of
    constraints.txt in all of them; docs/support.md says so.
    """
    first, *others = pythons
    extras = (*COMMAND, *ENGINES)
    tried = []
    for oldest in (False, True):
        tried += [Environment(first, (), oldest), *(Environment(first, (one,), oldest) for one in extras)]
        tried += [Environment(first, (), oldest, frames=(one,)) for one in FRAMES]
        tried += [Environment(first, extras, oldest, frames=FRAMES)]
    for python in others:
        tried += [Environment(python, (), False), Environment(python, extras, False, frames=FRAMES)]
    return tried


def uv_settings(settings):
    """Returns settings for uv, which does not read those of pip: the same index and folders of wheels."""
    kept = {name: value for name, value in settings.items() if not name.startswith("PYTHON")}
    for pip, uv in (("PIP_INDEX_URL", "UV_DEFAULT_INDEX"), ("PIP_FIND_LINKS", "UV_FIND_LINKS")):
        if pip in settings:
            kept.setdefault(uv, ",".join(settings[pip].split()))
    return kept


def try_environment(environment, wheel, folder, tools):
    """Installs the wheel into a fresh environment and runs tools/smoke.py there; returns what went wrong.

    uv links the files of an environment to its cache, so that each dependency is fetched and unpacked once.
    """
    place, pins = folder / "environment", folder / "pins.txt"
    constraints = (folder / "constraints.txt").read_text(encoding="utf-8").splitlines()
    torch = next(line for line in constraints if line.startswith("torch=="))
    pins.write_text("\n".join([torch, *(lower_bounds(folder) if environment.oldest else [])]) + "\n")
    extras = f"[{','.join(environment.extras)}]" if environment.extras else ""
    settings = uv_settings(os.environ)
    uv, python = tools / "bin" / "uv", place / "bin" / "python"
    try:
        run(uv, "venv", "--python", find_python(environment.python), place, env=settings)
        wanted = (f"{wheel}{extras}", *environment.frames)
        run(uv, "pip", "install", "--python", python, "--constraints", pins, *wanted, env=settings)
        smoke = [folder / "tools" / "smoke.py", "--extras", ",".join(environment.extras)]
        run(python, "-I", *smoke, env=settings, cwd=folder / "dist")
    except ReleaseError as error:
        return str(error)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return None


def try_all(wheel, folder, tools, pythons):
    """Tries all environments and prints a line for each; raises if one failed."""
    present = [python for python in pythons if find_python(python)]
    if not present:
        raise ReleaseError(f"none of these versions of Python is here: {', '.join(pythons)}.")
    failures = []
    for environment in environments(present):
        began = time.monotonic()
        problem = try_environment(environment, wheel, folder, tools)
        seconds = time.monotonic() - began
        print(f"  {'passed' if problem is None else 'FAILED'} {seconds:4.0f} s  {environment}", flush=True)
        if problem is not None:
            failures.append(f"{environment}:\n{problem}")
    for python in pythons:
        if python not in present:
            print(f"  not tried: Python {python} is not installed here", flush=True)
    if failures:
        raise ReleaseError("\n\n".join(failures))


def release(arguments):
    """Does all steps, the last of which changes the repository."""
    if not arguments.allow_dirty:
        check_clean()
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    check_stored_models(ROOT, version)
    date = arguments.date or datetime.datetime.now(datetime.UTC).date().isoformat()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copy_tracked(folder)
        gather_changes(folder, version, date)
        tools = folder / "tools-environment"
        run(sys.executable, "-m", "venv", tools)
        run(tools / "bin" / "python", "-m", "pip", "install", "--quiet", "build>=1.2", "twine>=6", "uv>=0.5")
        wheel, sdist = build(folder, tools)
        check_contents(wheel, sdist, version)
        print(
            f"built and checked {wheel.name} and {sdist.name}; installing into fresh environments:",
            flush=True,
        )
        try_all(wheel, folder, tools, arguments.pythons)
        (ROOT / "dist").mkdir(exist_ok=True)
        for artefact in (wheel, sdist):
            shutil.copy2(artefact, ROOT / "dist" / artefact.name)
        if not arguments.keep_fragments:
            gather_changes(ROOT, version, date)
    print(f"dist/{wheel.name} and dist/{sdist.name} are ready; commit CHANGELOG.md and tag v{version}.")


def main():
    """Reads the options; a failed step is one message and exit code 1."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--date", help="the date of the release (default: today)")
    parser.add_argument("--pythons", nargs="+", default=PYTHONS, help="the versions of Python to try")
    parser.add_argument("--keep-fragments", action="store_true", help="build and check only")
    parser.add_argument("--allow-dirty", action="store_true", help="release changes that are not committed")
    try:
        release(parser.parse_args())
    except ReleaseError as error:
        sys.exit(f"release: {error}")


if __name__ == "__main__":
    main()
