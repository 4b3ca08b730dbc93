"""
Ratings of users and items
==========================

A table of ratings is almost empty: most users have rated few items.
:class:`halfseen.ratings.MatrixFactorization` predicts the others.
"""
# sphinx_gallery_thumbnail_path = '_static/examples/recommender_from_ratings.png'

# %%
# There are two groups of users, each of which likes one of two groups of items. Four in ten pairs are rated.
import numpy as np
import pandas as pd

import halfseen

rng = np.random.default_rng(0)
pairs = rng.choice(60 * 40, size=960, replace=False)
user, item = pairs // 40, pairs % 40
liked = user % 2 == item % 2
ratings = pd.DataFrame(
    {"user": user, "item": item, "rating": np.clip(np.where(liked, 4, 2) + rng.integers(-1, 2, 960), 1, 5)}
)

# %%
# One in five ratings is held out.
held_out = rng.random(len(ratings)) < 0.2
recommender = halfseen.ratings.MatrixFactorization(n_factors=4, random_state=0).fit(ratings[~held_out])
test = ratings[held_out]
predicted = recommender.predict(test["user"], test["item"])
error = np.sqrt(np.mean((predicted - test["rating"]) ** 2))
baseline = np.sqrt(np.mean((ratings[~held_out]["rating"].mean() - test["rating"]) ** 2))
print(f"RMSE {error:.2f}; RMSE of predicting the mean {baseline:.2f}")

# %%
# Recommend items to a user of the first group, and to a new user who likes the items 0 and 2.
print(recommender.recommend(4, k=5))
print(recommender.recommend_new([0, 1, 2], [5, 1, 5], k=5))
