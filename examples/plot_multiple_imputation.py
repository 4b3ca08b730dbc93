"""
Standard errors that account for missing values
===============================================

Values of one column are removed from the table of penguins. The standard errors of a regression on a single
completed table are too small. Pooled over twenty completed tables, they account for the missing values.
"""
# sphinx_gallery_thumbnail_path = '_static/examples/multiple_imputation_like_mice.png'

# %%
# Flipper lengths of four in ten birds are removed.
import numpy as np

import halfseen

penguins = halfseen.datasets.load_penguins("pandas").dropna().drop(columns="year")
rng = np.random.default_rng(0)
incomplete = penguins.copy()
incomplete.loc[rng.random(len(penguins)) < 0.4, "flipper_length_mm"] = np.nan

# %%
# Complete the table by twenty proper draws, and pool the regressions by Rubin's rules.
formula = "body_mass_g ~ flipper_length_mm + C(sex)"
tables = halfseen.multiple_imputation(incomplete, n_draws=20, random_state=0)
pooled = halfseen.pool(formula, tables)
print(pooled)

# %%
# The same regression on the complete table, for comparison.
import statsmodels.formula.api as smf

print(smf.ols(formula, penguins).fit().summary().tables[1])

# %%
# Compare the observed and imputed values of the column.
halfseen.plot_imputed(incomplete, tables)
