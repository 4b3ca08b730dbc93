"""What models of images share: codes of pixels, which are numbers, shades or one of two values."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from halfseen.base.completion import LevelProbabilities
from halfseen.data.columns import Column
from halfseen.data.features import FeatureMap
from halfseen.data.incomplete import Incomplete


@dataclass(frozen=True)
class PixelModel:
    """A model over the codes of pixels; a subclass computes means and quantiles of their features.

    Parameters
    ----------
    columns : sequence of Column
        The D pixels, all of one kind, in the order (C, H, W).
    features : FeatureMap
        From codes (N, D) to features (N, D), as `pixel_features` makes it.
    """

    columns: Sequence[Column]
    features: FeatureMap

    @torch.no_grad()
    def point(self, codes: Incomplete) -> Tensor:
        """Returns codes (N, D) completed by expectations; of binary pixels, probabilities to be rounded."""
        return self._completed(codes, self._mean(codes))

    @torch.no_grad()
    def quantiles(self, codes: Incomplete, probabilities: Sequence[float]) -> Tensor:
        """Returns quantiles (Q, N, D) of shades and numbers; the more probable value of binary pixels."""
        if self._is_binary:
            return self.point(codes).expand(len(probabilities), -1, -1)
        return self._completed(codes, self._feature_quantiles(codes, probabilities))

    def level_probabilities(self, codes: Incomplete) -> dict[int, LevelProbabilities]:
        """Returns the probability of both values of binary pixels."""
        if not self._is_binary:
            return {}
        high = self.point(codes)
        pairs = torch.stack([1.0 - high, high], dim=-1)  # (N, D, 2)
        return {c: LevelProbabilities.of_levels(pairs[:, c], codes, c) for c in range(len(self.columns))}

    def _mean(self, codes: Incomplete) -> Tensor:
        """Returns the expected features (N, D)."""
        raise NotImplementedError

    def _feature_quantiles(self, codes: Incomplete, probabilities: Sequence[float]) -> Tensor:
        """Returns quantiles (Q, N, D) of features."""
        raise NotImplementedError

    @property
    def _is_binary(self) -> bool:
        return self.columns[0].levels is not None

    def _completed(self, codes: Incomplete, features: Tensor) -> Tensor:
        return torch.where(codes.observed, codes.x, self.features.numbers(features.double()))
