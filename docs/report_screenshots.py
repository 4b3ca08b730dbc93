"""Writes the pictures of reports that the guide shows: ``make screenshots``.

The reports are made from the bundled penguins, with more values missing (at random given the species), on a
desktop, on a phone and in dark mode, by headless chromium. Few colours keep the pictures small.
"""

import subprocess
import tempfile
from pathlib import Path

from PIL import Image

import halfseen
from halfseen.cli.main import main
from halfseen.missingness import MARLogistic

FOLDER = Path(__file__).parent / "_static" / "reports"
BORDER = 500
"""No window of chromium is narrower; a phone is a frame in a wider window, of which the rest is cut away."""

SHOTS = (
    ("impute", "desktop", 1280, 1120, False),
    ("impute", "phone", 390, 1120, False),
    ("impute", "dark", 1280, 720, True),
    ("describe", "desktop", 1280, 1120, False),
    ("describe", "phone", 390, 1120, False),
    ("compare", "desktop", 1280, 1120, False),
    ("compare", "dark", 390, 1120, True),
)


def write_reports(folder: Path) -> None:
    """Write the three reports of an incomplete table into a folder."""
    table = halfseen.datasets.load_penguins()
    mechanism = MARLogistic(
        rate=0.25,
        predictors=["species"],
        steepness=2.0,
        columns=["bill_length_mm", "flipper_length_mm", "body_mass_g", "year", "island"],
    )
    incomplete = mechanism.fit(table).amputate(table, random_state=1)
    older = table["year"] < 2009
    incomplete.to_csv(folder / "penguins.csv", index=False)
    table[older].to_csv(folder / "penguins_2008.csv", index=False)
    source = str(folder / "penguins.csv")
    run("impute", source, "-o", str(folder / "filled.csv"), "--report", str(folder / "impute.html"))
    against = ("--against", str(folder / "penguins_2008.csv"))
    run("describe", source, *against, "--report", str(folder / "describe.html"))
    run("compare", source, "--repeats", "3", "--report", str(folder / "compare.html"))


def run(*command: str) -> None:
    """Run a command of halfseen quietly."""
    code = main([*command, "--quiet"])
    if code != 0:
        raise SystemExit(f"halfseen {' '.join(command)} failed")


def shoot(folder: Path, page: str, width: int, height: int, *, dark: bool) -> Image.Image:
    """Return a picture of the top of a page on a screen of that width."""
    frame = folder / "frame.html"
    frame.write_text(
        f'<!DOCTYPE html><body style="margin:0"><iframe src="{page}.html" scrolling="no" '
        f'style="width:{width}px;height:{height}px;border:0"></iframe></body>',
        encoding="utf-8",
    )
    target = folder / "shot.png"
    command = [
        "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
        f"--user-data-dir={folder / 'profile'}", f"--window-size={max(width, BORDER)},{height}",
        f"--blink-settings=preferredColorScheme={0 if dark else 1}", f"--screenshot={target}", f"file://{frame}",
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return Image.open(target).convert("RGB").crop((0, 0, width, height))


def write_screenshots() -> None:
    """Write all pictures and print their sizes."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_reports(folder)
        for page, screen, width, height, dark in SHOTS:
            target = FOLDER / f"{page}_{screen}.png"
            picture = shoot(folder, page, width, height, dark=dark)
            picture.quantize(64, dither=Image.Dither.NONE).save(target, optimize=True)
            print(f"{target.name}: {target.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    write_screenshots()
