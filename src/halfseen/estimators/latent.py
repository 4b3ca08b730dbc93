"""Imputers by deep latent-variable models: one estimator with every choice, and the published methods."""

from collections.abc import Callable
from typing import Any

from halfseen.estimators.latent_base import BaseLatentImputer
from halfseen.training.progress import Progress
from halfseen.vocabulary import Missingness


class LatentImputer(BaseLatentImputer):
    r"""Imputes by a deep latent-variable model, with every choice open.

    .. math:: p(x_o, o) = \int p(z) \prod_{j \in o} p(x_j \mid z) \, p(o \mid x_o, z) \, dz

    Networks map latents to the distribution of each column and rows to a posterior of latents, trained by a
    lower bound of the likelihood. Both networks contain a linear path that starts from a factor analysis, so
    the model begins as a Gaussian and becomes non-linear as far as held-out rows gain from it. Missing cells
    are filled by importance sampling. `score_samples` is a lower bound of :math:`\log p(x_o)`, tighter with
    more `n_imputation_draws`.

    Parameters
    ----------
    posterior : {"gaussian", "mixture", "imputations"}, default="gaussian"
        The family of :math:`q(z \mid x_o)`; a mixture fits what missing cells leave ambiguous. By
        ``"imputations"`` it is a mixture over `n_draws` imputations of each row, which improve in training.
    n_components : int, default=5
        Components of a mixture.
    sampling : {"ancestral", "stratified"}, default="ancestral"
        Whether training draws from a mixture, or from each component.
    bound : {"elbo", "iwelbo", "looser"}, default="iwelbo"
        What training maximises; ``"looser"`` guards stratified mixtures against collapse.
    gradient : {"full", "stl", "dreg"}, default="stl"
        The estimator of the gradient of the posterior.
    missingness : str, mechanism or function, default="mar"
        The assumed mechanism: ``"mar"`` (missing at random); a probability that depends on the missing value
        itself (``"self-masking-logistic"``, ``"self-masking-monotone"``, ``"self-masking-shared-slope"``,
        ``"self-masking-flexible"``); or a probability that depends on the whole row (``"linear"``,
        ``"nonlinear"``). If known, a fitted mechanism of `halfseen.missingness`, or a function (also a torch
        module, if frozen) from tables of numbers (a tensor) to the probabilities that cells are missing.
    signs : int, sequence or dict, optional
        The direction of ``"self-masking-logistic"`` and ``"self-masking-monotone"``: +1 if larger values are
        missing more often, -1 if smaller values are. By default, a logistic mechanism learns its direction
        and a monotone one rises.
    n_draws : int, default=5
        Draws per row in training; shared out among the components if stratified.
    n_latent : int or "auto", default="auto"
        The number of latents: one less than columns, at most 16.
    numeric : {"student-t", "gaussian", "shared-gaussian"}, default="student-t"
        The distribution of columns of numbers, given latents.
    encoder : {"guess", "zero", "learned", "set"}, default="guess"
        What the encoder reads: holes filled with a linear guess, zeros or learned constants, beside the mask;
        or the set of what is observed, which holes leave out. Not for images.
    decoder : {"residual", "linear"}, default="residual"
        A linear decoder with ``numeric="shared-gaussian"`` is probabilistic PCA.
    width, n_blocks : int, default=128 and 2
        Size and number of residual blocks of the networks.
    learning_rate : float, default=1e-3
        Step size at the start; it falls to zero along half a cosine.
    batch_size, max_epochs : int or "auto", default="auto"
        Rows per step, and the most passes over the table; about 2500 steps for each training, or for both
        starts of a self-masking model together if there are more than some 6000 rows.
    patience : int, default=50
        Training stops after so many epochs without improvement.
    validation_fraction : float, default=0.1
        The share of rows held out to choose the best epoch; tables below 50 rows hold out none.
    n_starts : int, default=1
        Trainings, of which that with the best held-out bound is kept. Of self-masking models twice as many:
        half start from a probit model of how values hide, half as if all beyond the values seen did.
    n_imputation_draws : int, default=200
        Latent draws by which cells are filled.
    image_shape : tuple of int, optional
        (H, W) or (C, H, W), sides of 8 or more, if every row is an image and every column a pixel, in this
        order. Networks are then convolutional, with a map for every 4 of `width`, and start at random; 'auto'
        is 32 latents and batches of at most 128. Pixels are all of one kind, by the values of all: two
        values, at most 256 shades (whole numbers, or multiples of 1/255), or numbers. Pixels that never
        change or were never seen are modelled like the others. Models of missingness have a bias for each
        pixel and share the rest; `signs` is one for all.
    n_chain_steps : int, default=0
        Steps of Metropolis within Gibbs by which `sample` moves each draw after importance resampling, for
        rows whose weights are poor; the networks' own widths hold then, not `stretch_`. Not for mixtures.
    callback : callable, optional
        Called with a progress record after each epoch.
    schema : dict, optional
        As in `GaussianImputer`.
    random_state : int, numpy generator or None, default=None
        Seeds initialisation, batches and draws.

    Attributes
    ----------
    schema_ : Schema
        What each column is, and why.
    model_ : TabularLatent
        The fitted model; ``model_.sampler.model`` has the networks.
    history_ : History
        The loss after each epoch, minus the bound.
    trust_ : dict
        Of some training rows, the median effective number of draws, and the share of rows whose importance
        weights are not to be trusted.
    stretch_ : list of float
        How many times wider than the networks say intervals and draws are, by modelled column of numbers, so
        that 90% intervals cover 90% of known cells hidden from held-out rows. Empty with a model of
        missingness, for images, and without held-out rows.

    References
    ----------
    Mattei & Frellsen (2019), MIWAE. Ipsen, Mattei & Frellsen (2021), not-MIWAE. Simkus & Gutmann (2024),
    Improving variational autoencoder estimation from incomplete data with mixture variational families.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> first = rng.normal(size=200)
    >>> X = np.column_stack([first, 2 * first + 0.1 * rng.normal(size=200)])
    >>> X[::5, 1] = np.nan
    >>> imputer = LatentImputer(max_epochs=10, random_state=0).fit(X)
    >>> bool(abs(imputer.transform([[1.5, np.nan]])[0, 1] - 3.0) < 0.3)
    True
    """

    def __init__(
        self,
        *,
        posterior: str = "gaussian",
        n_components: int = 5,
        sampling: str = "ancestral",
        bound: str = "iwelbo",
        gradient: str = "stl",
        missingness: Any = Missingness.MAR.value,
        signs: Any = None,
        n_draws: int = 5,
        n_latent: int | str = "auto",
        numeric: str = "student-t",
        encoder: str = "guess",
        decoder: str = "residual",
        width: int = 128,
        n_blocks: int = 2,
        learning_rate: float = 1e-3,
        batch_size: int | str = "auto",
        max_epochs: int | str = "auto",
        patience: int = 50,
        validation_fraction: float = 0.1,
        n_starts: int = 1,
        n_imputation_draws: int = 200,
        n_chain_steps: int = 0,
        image_shape: Any = None,
        callback: Callable[[Progress], None] | None = None,
        schema: Any = None,
        random_state: Any = None,
    ) -> None:
        self.posterior = posterior
        self.n_components = n_components
        self.sampling = sampling
        self.bound = bound
        self.gradient = gradient
        self.missingness = missingness
        self.signs = signs
        self.n_draws = n_draws
        self.n_latent = n_latent
        self.numeric = numeric
        self.encoder = encoder
        self.decoder = decoder
        self.width = width
        self.n_blocks = n_blocks
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.n_starts = n_starts
        self.n_imputation_draws = n_imputation_draws
        self.n_chain_steps = n_chain_steps
        self.image_shape = image_shape
        self.callback = callback
        self.schema = schema
        self.random_state = random_state


class _GaussianPreset(BaseLatentImputer):
    """A published method with a Gaussian posterior."""

    def __init__(
        self,
        *,
        n_draws: int = 5,
        n_latent: int | str = "auto",
        numeric: str = "student-t",
        decoder: str = "residual",
        width: int = 128,
        n_blocks: int = 2,
        learning_rate: float = 1e-3,
        batch_size: int | str = "auto",
        max_epochs: int | str = "auto",
        patience: int = 50,
        validation_fraction: float = 0.1,
        n_imputation_draws: int = 200,
        image_shape: Any = None,
        callback: Callable[[Progress], None] | None = None,
        schema: Any = None,
        random_state: Any = None,
    ) -> None:
        self.n_draws = n_draws
        self.n_latent = n_latent
        self.numeric = numeric
        self.decoder = decoder
        self.width = width
        self.n_blocks = n_blocks
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.n_imputation_draws = n_imputation_draws
        self.image_shape = image_shape
        self.callback = callback
        self.schema = schema
        self.random_state = random_state


class MVAEImputer(_GaussianPreset):
    """Imputes by a variational autoencoder of incomplete rows: Gaussian posterior, ELBO, missing at random.

    The parameters are those of `LatentImputer` that the method leaves open; so is `score_samples`, a bound.

    References
    ----------
    Nazabal et al. (2020), Handling incomplete heterogeneous data using VAEs.
    """

    bound = "elbo"


class MIWAEImputer(_GaussianPreset):
    """Imputes by MIWAE: Gaussian posterior, importance weighted bound, missing at random.

    The parameters are those of `LatentImputer` that the method leaves open; so is `score_samples`, a bound.

    References
    ----------
    Mattei & Frellsen (2019), MIWAE: deep generative modelling and imputation of incomplete data sets.
    """


class NotMIWAEImputer(BaseLatentImputer):
    """Imputes by not-MIWAE: as MIWAE, with a model of how values hide themselves.

    The parameters are those of `LatentImputer` that the method leaves open, with a larger `learning_rate`.
    `score_samples` is a bound of the log density of the observed cells, without the mask, so it compares with
    other imputers. ``model_.mask_probabilities(column, values)`` is what was learned of how cells hide.

    References
    ----------
    Ipsen, Mattei & Frellsen (2021), not-MIWAE: deep generative modelling with missing not at random data.
    """

    def __init__(
        self,
        *,
        missingness: Any = Missingness.LOGISTIC.value,
        signs: Any = None,
        n_draws: int = 5,
        n_latent: int | str = "auto",
        numeric: str = "gaussian",
        decoder: str = "residual",
        width: int = 128,
        n_blocks: int = 2,
        learning_rate: float = 3e-3,
        batch_size: int | str = "auto",
        max_epochs: int | str = "auto",
        patience: int = 50,
        validation_fraction: float = 0.1,
        n_starts: int = 1,
        n_imputation_draws: int = 200,
        image_shape: Any = None,
        callback: Callable[[Progress], None] | None = None,
        schema: Any = None,
        random_state: Any = None,
    ) -> None:
        self.missingness = missingness
        self.signs = signs
        self.n_draws = n_draws
        self.n_latent = n_latent
        self.numeric = numeric
        self.decoder = decoder
        self.width = width
        self.n_blocks = n_blocks
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.n_starts = n_starts
        self.n_imputation_draws = n_imputation_draws
        self.image_shape = image_shape
        self.callback = callback
        self.schema = schema
        self.random_state = random_state


class _MixturePreset(BaseLatentImputer):
    """A published method with a mixture posterior."""

    posterior = "mixture"

    def __init__(
        self,
        *,
        n_components: int = 5,
        n_draws: int = 5,
        n_latent: int | str = "auto",
        numeric: str = "student-t",
        decoder: str = "residual",
        width: int = 128,
        n_blocks: int = 2,
        learning_rate: float = 1e-3,
        batch_size: int | str = "auto",
        max_epochs: int | str = "auto",
        patience: int = 50,
        validation_fraction: float = 0.1,
        n_imputation_draws: int = 200,
        image_shape: Any = None,
        callback: Callable[[Progress], None] | None = None,
        schema: Any = None,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.n_draws = n_draws
        self.n_latent = n_latent
        self.numeric = numeric
        self.decoder = decoder
        self.width = width
        self.n_blocks = n_blocks
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.n_imputation_draws = n_imputation_draws
        self.image_shape = image_shape
        self.callback = callback
        self.schema = schema
        self.random_state = random_state


class MissVAEImputer(_MixturePreset):
    """Imputes by MissVAE: mixture posterior with ancestral draws, ELBO, missing at random.

    The parameters are those of `LatentImputer` that the method leaves open; so is `score_samples`, a bound.

    References
    ----------
    Simkus & Gutmann (2024), Improving variational autoencoder estimation from incomplete data with mixture
    variational families.
    """

    bound = "elbo"


class MissSVAEImputer(_MixturePreset):
    """Imputes by MissSVAE: mixture posterior with stratified draws, SELBO, missing at random.

    As `MissVAEImputer` otherwise.
    """

    bound = "elbo"
    sampling = "stratified"


class MissIWAEImputer(_MixturePreset):
    """Imputes by MissIWAE: mixture posterior with ancestral draws, IWELBO, missing at random.

    As `MissVAEImputer` otherwise.
    """


class MissSIWAEImputer(_MixturePreset):
    """Imputes by MissSIWAE: mixture posterior with stratified draws, SIWELBO, missing at random.

    As `MissVAEImputer` otherwise.
    """

    sampling = "stratified"


class DeMissVAEImputer(_GaussianPreset):
    """Imputes by DeMissVAE: decoder and encoder trained by bounds of their own on rows with many imputations.

    The posterior of a row is the mixture of those of its `n_draws` imputations, which are kept from epoch to
    epoch and redrawn from the model. Afterwards an encoder for incomplete rows is trained to the finished
    decoder, and cells are filled as by the other presets. Missing at random. The parameters are those of
    `LatentImputer` that the method leaves open; so is `score_samples`, a bound.

    References
    ----------
    Simkus & Gutmann (2024), Improving variational autoencoder estimation from incomplete data with mixture
    variational families, section 4.2.
    """

    posterior = "imputations"
