"""
Series with missing measurements
================================

:class:`halfseen.SequenceClassifier` classifies series in which most measurements are missing, and
:func:`halfseen.evaluation.vsp_curve` shows whether its predictions depend on how many measurements are known.
"""

# %%
# Series of twelve hours with three signals; half of the values are missing.
import matplotlib.pyplot as plt
import numpy as np

import halfseen

rng = np.random.default_rng(0)
series = rng.normal(size=(300, 12, 3))
outcome = rng.random(300) < 0.5
series[outcome, :, 0] += 1.0  # the first signal is higher in one class
series[rng.random(series.shape) < 0.5] = np.nan

model = halfseen.SequenceClassifier(16, max_epochs=15, random_state=0)
model.fit({"X": series[:200], "y": outcome[:200]}, {"X": series[200:250], "y": outcome[200:250]})
right = model.predict(series[250:]) == outcome[250:]
print(f"{right.mean():.0%} of {right.size} new series are classified correctly")

# %%
# How does the mean prediction change if parts of the known values of the same series are hidden?
curve = halfseen.evaluation.vsp_curve(model, series[250:], n_draws=5)
print(curve.sentence)

fig, ax = plt.subplots(figsize=(6, 4), layout="constrained")
ax.fill_between(curve.shares, curve.lows, curve.highs, alpha=0.3)
ax.plot(curve.shares, curve.means, marker="o")
ax.set(xlabel="share of the known values that is shown", ylabel="mean probability of the class")
plt.show()
