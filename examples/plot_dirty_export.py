"""
An exported file with units, decimal commas and codes
=====================================================

Files that are exported from spreadsheets and forms are rarely clean tables. The command ``halfseen impute``
recognises common formats and writes imputed values in the format of their column.
"""
# sphinx_gallery_thumbnail_path = '_static/reports/impute_desktop.png'

# %%
# A file with semicolons, decimal commas, units, a thousands point, and ``-99`` for unknown.
import tempfile
from pathlib import Path

import numpy as np

from halfseen.cli.main import main

rng = np.random.default_rng(0)
weight = rng.normal(72, 9, size=80)
price = 1000 + 8 * weight + rng.normal(0, 20, size=80)
lines = ["id;weight;price;city"]
for i in range(80):
    kilos = "" if i % 7 == 0 else f"{weight[i]:.1f} kg".replace(".", ",")
    cost = "-99" if i % 5 == 0 else f"{price[i]:,.2f}".translate(str.maketrans(",.", ".,"))
    lines.append(f"A{i:03d};{kilos};{cost};{('Oslo', 'Bergen')[i % 2]}")
folder = Path(tempfile.mkdtemp())
(folder / "export.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
print("\n".join(lines[:8]))

# %%
# One command reads the file, imputes it and writes the result. ``--null`` gives the code for unknown values.
command = ["impute", str(folder / "export.csv"), "-o", str(folder / "filled.csv"), "--null", "-99"]
main([*command, "--method", "gaussian", "--report", str(folder / "report.html")])

# %%
# Imputed values have the formats of their columns; everything else in the file is unchanged.
print("\n".join((folder / "filled.csv").read_text(encoding="utf-8").splitlines()[:8]))
