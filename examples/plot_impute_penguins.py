"""
How uncertain is an imputation?
===============================

Some penguins of the bundled table were not measured. :class:`halfseen.GaussianImputer` imputes each missing
value from the observed values of the same bird, with an interval. To check the intervals we remove some known
flipper lengths, impute them, and compare.
"""

# %%
# The table has columns of several kinds, and missing values of its own.
import matplotlib.pyplot as plt
import numpy as np

import halfseen

penguins = halfseen.datasets.load_penguins()
penguins.isna().sum()

# %%
# We remove one known flipper length in five.
rng = np.random.default_rng(0)
known = penguins["flipper_length_mm"].notna().to_numpy()
removed = known & (rng.random(len(penguins)) < 0.2)
incomplete = penguins.copy()
incomplete.loc[removed, "flipper_length_mm"] = np.nan

# %%
# A fitted imputer gives one value for each missing value, and an interval that should contain the true value
# nine times in ten.
imputer = halfseen.GaussianImputer(random_state=0).fit(incomplete)
tables = (penguins, imputer.transform(incomplete), *imputer.interval(incomplete, level=0.9))
truth, filled, low, high = (table["flipper_length_mm"].to_numpy()[removed] for table in tables)

inside = (low <= truth) & (truth <= high)
print(f"{inside.sum()} of {inside.size} true values lie in their 90% interval")

# %%
# A point on the diagonal is a perfect imputation; the bars are the intervals.
fig, ax = plt.subplots(figsize=(6, 5), layout="constrained")
error = np.maximum(0.0, [filled - low, high - filled])
ax.errorbar(truth, filled, yerr=error, fmt="o", markersize=4, elinewidth=1, alpha=0.6)
ax.axline((200, 200), slope=1, color="black", linewidth=1)
ax.set_xlabel("true flipper length (mm)")
ax.set_ylabel("imputed flipper length (mm)")
ax.set_title("Removed values and their imputations")
plt.show()
