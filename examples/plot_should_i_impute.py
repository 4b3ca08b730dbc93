"""
Should I impute at all?
=======================

To predict a column from an incomplete table, it is not necessary to impute the missing values first. This
example measures whether imputing helps, fits a predictor, and applies it to new rows that lack a column.
"""

# %%
# A quarter of the measurements of the penguins is removed; flipper lengths of heavy birds are missing
# more often. The birds are divided at random into training rows and new rows. The file of new rows lacks the
# weight, which is to be predicted, and the depth of the bill.
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import halfseen
from halfseen.cli.main import main

penguins = halfseen.datasets.load_penguins("pandas").dropna().drop(columns="year")
rng = np.random.default_rng(0)
measured = ["bill_length_mm", "bill_depth_mm", "flipper_length_mm", "sex"]
incomplete = penguins.copy()
incomplete[measured] = incomplete[measured].where(rng.random((len(penguins), 4)) > 0.25)
lost = (penguins["body_mass_g"] > 4500) & (rng.random(len(penguins)) < 0.3)
incomplete.loc[lost, "flipper_length_mm"] = np.nan
is_new = rng.random(len(penguins)) < 0.5
folder = Path(tempfile.mkdtemp())
train, new, model = folder / "train.csv", folder / "new.csv", folder / "weight.halfseen"
incomplete[~is_new].to_csv(train, index=False)
incomplete[is_new].drop(columns=["body_mass_g", "bill_depth_mm"]).to_csv(new, index=False)
print(incomplete.isna().mean().round(2))

# %%
# ``halfseen compare --target`` cross-validates several ways to predict from incomplete rows. Here they
# are: boosted trees, which accept missing values; linear models after imputing column means with missingness
# indicators, after Gaussian imputation, and averaged over several imputations; NeuMiss, a network for
# incomplete rows; and a weighted average of all these. The methods are also scored after three in ten known
# values of the test rows are removed. The sentences below the table state which method is best, whether
# imputing helps, and which differences may be due to chance.
methods = "boosting,constant+linear,gaussian+linear,multiple+linear,neumiss,average"
command = ["compare", str(train), "--target", "body_mass_g", "--methods", methods]
main([*command, "--folds", "3", "--repeats", "2", "--rates", "0.3"])

# %%
# A predictor for incomplete rows is fitted and saved by one command, and applied by another. The depth of the
# bill is treated as missing in every new row; notes state this, and that missingness differs from training.
main(["fit", str(train), "--target", "body_mass_g", "--method", "neumiss", "--save-model", str(model)])
report = folder / "report.html"
main(["predict", str(model), str(new), "-o", str(folder / "predicted.csv"), "--report", str(report)])

# %%
# The true weights are known here. Intervals are wider where more inputs are missing.
predicted = pd.read_csv(folder / "predicted.csv")
truth = penguins.loc[is_new, "body_mass_g"].to_numpy()
inside = (predicted["prediction_low"] <= truth) & (truth <= predicted["prediction_high"])
width = predicted["prediction_high"] - predicted["prediction_low"]
n_missing = predicted[["bill_length_mm", "flipper_length_mm", "sex"]].isna().sum(axis=1)
print(f"{inside.mean():.0%} of the weights are within their 90% intervals")
print(width.groupby(n_missing).mean().round(0))
plt.scatter(truth, predicted["prediction"], c=n_missing, cmap="viridis")
plt.axline((4000, 4000), slope=1, color="grey", linewidth=1)
plt.xlabel("true weight, g")
plt.ylabel("predicted weight, g")
plt.colorbar(label="missing inputs other than the bill depth")
plt.show()
