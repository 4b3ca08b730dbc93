"""
How sure is an imputation?
==========================

Some penguins of the bundled table were not measured. :class:`halfseen.GaussianImputer` fills each hole from
what is known of the same bird, and says how sure it is. To see whether that is honest we hide some flipper
lengths that we do know, fill them, and compare.
"""

# %%
# The table has columns of several kinds, and holes of its own.
import matplotlib.pyplot as plt
import numpy as np

import halfseen

penguins = halfseen.datasets.load_penguins()
penguins.isna().sum()

# %%
# We hide one known flipper length in five.
rng = np.random.default_rng(0)
known = penguins["flipper_length_mm"].notna().to_numpy()
hidden = known & (rng.random(len(penguins)) < 0.2)
holes = penguins.copy()
holes.loc[hidden, "flipper_length_mm"] = np.nan

# %%
# A fitted imputer gives one value for each hole, and an interval in which the truth should lie nine times in
# ten.
imputer = halfseen.GaussianImputer(random_state=0).fit(holes)
tables = (penguins, imputer.transform(holes), *imputer.interval(holes, level=0.9))
truth, filled, low, high = (table["flipper_length_mm"].to_numpy()[hidden] for table in tables)

inside = (low <= truth) & (truth <= high)
print(f"{inside.sum()} of {inside.size} true values lie in their 90% interval")

# %%
# A point on the diagonal is a perfect guess; the bars are the intervals.
fig, ax = plt.subplots(figsize=(6, 5), layout="constrained")
error = np.maximum(0.0, [filled - low, high - filled])
ax.errorbar(truth, filled, yerr=error, fmt="o", markersize=4, elinewidth=1, alpha=0.6)
ax.axline((200, 200), slope=1, color="black", linewidth=1)
ax.set_xlabel("true flipper length (mm)")
ax.set_ylabel("imputed flipper length (mm)")
ax.set_title("Hidden values, and what was made of them")
plt.show()
