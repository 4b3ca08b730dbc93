"""Early stopping, and the choice of the best epoch."""

import math


class EarlyStopping:
    """Monitors a loss and decides when to stop.

    The best epoch is that with the lowest loss; patience is renewed only by an improvement of at least
    `min_improvement`. The state depends on the losses alone, so that a resumed run can replay them.

    Parameters
    ----------
    patience : int
        Epochs without such an improvement after which to stop.
    min_improvement : float
        How much lower the loss must be to renew the patience.

    Examples
    --------
    >>> stopping = EarlyStopping(patience=2, min_improvement=0.1)
    >>> [stopping.update(loss) for loss in (1.0, 0.5, 0.45, 0.6)]
    [True, True, True, False]
    >>> stopping.best_epoch, stopping.best_loss, stopping.exhausted
    (2, 0.45, True)
    """

    def __init__(self, patience: int, min_improvement: float) -> None:
        self.patience = patience
        self.min_improvement = min_improvement
        self.n_epochs = 0
        self.best_loss = math.inf
        self.best_epoch: int | None = None
        self._reference = math.inf
        self._waited = 0

    def update(self, loss: float) -> bool:
        """Takes the loss of the next epoch; returns whether it is the lowest so far."""
        is_best = loss < self.best_loss
        if is_best:
            self.best_loss, self.best_epoch = loss, self.n_epochs
        if loss < self._reference - self.min_improvement:
            self._reference, self._waited = loss, 0
        else:
            self._waited += 1
        self.n_epochs += 1
        return is_best

    @property
    def exhausted(self) -> bool:
        """Whether the patience has run out."""
        return self._waited >= self.patience
