"""
Missing inputs in a network of your own
=======================================

If missing inputs of a network are set to zero, its predictions depend on the number of known inputs.
:class:`halfseen.sparsity.SparsityNormalizer` is a transformer that reduces this dependence.
"""

# %%
# The target is the mean of twenty inputs. The share of missing inputs varies between rows.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.impute import SimpleImputer
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

import halfseen

rng = np.random.default_rng(0)
X = rng.uniform(size=(400, 20))
y = X.mean(axis=1)
X[rng.random(X.shape) < rng.uniform(0, 0.9, size=(400, 1))] = np.nan

network = MLPRegressor(hidden_layer_sizes=(32,), tol=1e-3, random_state=0)
zeros = make_pipeline(SimpleImputer(strategy="constant", fill_value=0.0), network).fit(X, y)
normalised = make_pipeline(MinMaxScaler(), halfseen.sparsity.SparsityNormalizer(), network).fit(X, y)

# %%
# The mean prediction should not depend on how many inputs the model receives.
fig, ax = plt.subplots(figsize=(6, 4), layout="constrained")
for name, model in (("zeros", zeros), ("normalised", normalised)):
    curve = halfseen.evaluation.vsp_curve(model, X, n_draws=5)
    content = curve.to_dict()
    print(f"{name}: {curve.sentence}")
    ax.plot(content["shares"], content["means"], marker="o", label=name)
ax.set_xlabel("share of the known inputs that is shown")
ax.set_ylabel("mean prediction")
ax.legend()
plt.show()
