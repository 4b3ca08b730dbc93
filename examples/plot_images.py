"""
Digits with a missing half
==========================

:class:`halfseen.MIWAEImputer` learns from incomplete images and draws several plausible completions.
"""

# %%
# The lower half of every second image is missing.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import halfseen

images = (load_digits().data[:500] > 7).astype(float)
seen = images.copy()
seen[::2, 32:] = np.nan

imputer = halfseen.MIWAEImputer(
    image_shape=(8, 8), n_latent=8, width=64, learning_rate=3e-3, max_epochs=10, random_state=0
)
imputer.fit(seen)

# %%
# Each row shows an image, its observed part, and three draws.
draws = np.asarray(imputer.sample(seen[:8:2], n_draws=3))
fig, axes = plt.subplots(4, 5, figsize=(5, 4), layout="constrained")
for row in range(4):
    pictures = (images[2 * row], seen[2 * row], *draws[:, row])
    for ax, picture in zip(axes[row], pictures, strict=True):
        ax.imshow(np.ma.masked_invalid(picture.reshape(8, 8)), cmap="gray_r", vmin=0, vmax=1)
        ax.set_axis_off()
plt.show()
