"""
Values that are missing because they are large
==============================================

When large values are missing more often, imputation under *missing at random* is biased. A model of the
mechanism can correct this, if its shape is right.
"""

# %%
# Two correlated columns; large values of the second are often missing. Its true mean is 20.
import matplotlib.pyplot as plt
import numpy as np

import halfseen

rng = np.random.default_rng(0)
truth = rng.multivariate_normal([10.0, 20.0], [[4.0, 3.0], [3.0, 4.0]], size=1500)
table = truth.copy()
table[truth[:, 1] > rng.normal(20.0, 1.0, size=len(truth)), 1] = np.nan

# %%
# The same model with and without the mechanism.
filled = {}
for missingness in ("mar", "self-masking-probit"):
    imputer = halfseen.GaussianImputer(missingness=missingness, margins="gaussian", random_state=0)
    filled[missingness] = imputer.fit_transform(table)[:, 1]
    print(f"{missingness}: mean {filled[missingness].mean():.2f}")

# %%
# Nothing in the table shows which of the two is right: both fit the observed values.
fig, ax = plt.subplots(figsize=(6, 4), layout="constrained")
bins = np.linspace(12, 28, 40)
ax.hist(truth[:, 1], bins, color="lightgrey", label="truth")
missing = np.isnan(table[:, 1])
for name, values in filled.items():
    ax.hist(values[missing], bins, histtype="step", linewidth=1.5, label=f"imputed, {name}")
ax.set_xlabel("second column")
ax.legend()
plt.show()
