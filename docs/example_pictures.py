"""Runs the examples of docs/examples and stores the pictures that they write: ``make screenshots``."""

import os
import re
import tempfile
from pathlib import Path

from PIL import Image

HERE = Path(__file__).parent
TARGET = HERE / "_static" / "examples"


def write_pictures() -> None:
    """Run each page that saves a figure, and keep the figure with few colours, so that it stays small."""
    for page in sorted((HERE / "examples").glob("*.md")):
        text = page.read_text(encoding="utf-8")
        if "savefig" not in text:
            continue
        namespace = {"__name__": "__page__"}
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            for block in re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL):
                exec(compile(block, str(page), "exec"), namespace)
            for picture in sorted(Path(folder).glob("*.png")):
                target = TARGET / picture.name
                Image.open(picture).convert("RGB").quantize(64).save(target, optimize=True)
                print(f"{target.name}: {target.stat().st_size / 1000:.0f} kB")
            os.chdir(HERE)


if __name__ == "__main__":
    TARGET.mkdir(parents=True, exist_ok=True)
    write_pictures()
