"""Imputers by deep latent-variable models: one general estimator, and the published methods."""

from dataclasses import dataclass
from typing import Any

from halfseen.base.parameters import IMPUTER_ATTRIBUTES, Descriptions, documented_by
from halfseen.latent.imputer import BaseLatentImputer
from halfseen.words import Missingness

DESCRIPTIONS: Descriptions = {
    "posterior": (
        '{"gaussian", "mixture", "imputations"}',
        "The family of the approximate posterior :math:`q(z \\mid x_o)`. A mixture can represent "
        'several modes that missing values leave possible. With ``"imputations"`` the posterior '
        "is a mixture over `n_draws` imputations of each row, which are updated in training.",
    ),
    "n_components": "The number of components of a mixture posterior.",
    "sampling": (
        '{"ancestral", "stratified"}',
        "Whether training draws from the mixture, or separately from each of its components.",
    ),
    "bound": (
        '{"elbo", "iwelbo", "siwelbo-loose"}',
        'The lower bound that training maximises. ``"siwelbo-loose"`` is a looser '
        "importance-weighted bound for stratified draws that prevents components from collapsing.",
    ),
    "gradient": (
        '{"full", "stl", "dreg"}',
        "The gradient estimator of the posterior: full, sticking the landing, or doubly reparametrised.",
    ),
    "missingness": (
        "str, mechanism or function",
        'The assumed mechanism: ``"mar"`` (missing at random); a probability that depends on the '
        'missing value itself (``"self-masking-logistic"``, ``"self-masking-monotone"``, '
        '``"self-masking-shared-slope"``, ``"self-masking-flexible"``); or a probability that '
        'depends on the whole row (``"linear"``, ``"nonlinear"``). If the mechanism is known: a '
        "fitted mechanism of `halfseen.missingness`, or a function (also a frozen torch module) "
        "from a tensor of rows to the probabilities that their values are missing.",
    ),
    "signs": (
        "int, sequence or dict",
        'The direction of ``"self-masking-logistic"`` and ``"self-masking-monotone"``: +1 if '
        "larger values are missing more often, -1 if smaller values are. By default, a logistic "
        "mechanism learns its direction and a monotone one rises.",
    ),
    "n_draws": "Latent draws per row in training; divided among the components if sampling is stratified.",
    "n_latent": (
        'int or "auto"',
        'The number of latent variables. ``"auto"`` is one less than the number of columns, at '
        "most 16, and 32 for images.",
    ),
    "numeric": (
        '{"student-t", "gaussian", "shared-gaussian"}',
        'The distribution of numeric columns given the latent variables; ``"shared-gaussian"`` '
        "has one variance per column.",
    ),
    "likelihoods": (
        "dict",
        "The distribution of individual columns given the latent variables, by column name, in place "
        'of `numeric`: ``"poisson"``, ``"negative-binomial"`` or ``"zero-inflated-poisson"`` for counts, '
        '``"log-normal"`` for positive numbers, ``"gaussian"``, ``"shared-gaussian"`` or ``"student-t"`` for '
        "any numbers, "
        '``"categorical"`` or ``"ordinal"`` for levels. Not for images.',
    ),
    "encoder": (
        '{"preimputed", "zero", "learned", "set"} or callable',
        "What the encoder receives for missing values, in addition to the mask: linear predictions, zeros, or"
        ' learned constants. With ``"set"`` it sees the set of observed values. A function '
        "``encoder(n_inputs, n_outputs)`` that returns a torch module replaces the network: its inputs "
        "are the features, with missing values preimputed, followed by the mask. Not for images.",
    ),
    "decoder": (
        '{"residual", "linear"} or callable',
        'The decoder network. A linear decoder with ``numeric="shared-gaussian"`` is probabilistic PCA. '
        "A function ``decoder(n_inputs, n_outputs)`` that returns a torch module replaces the network: "
        "it maps latent variables of shape (..., n_inputs) to the parameters of the column "
        "distributions. User-defined networks are added to a linear map, with a factor that starts at zero.",
    ),
    "width": "Units of each layer of the networks.",
    "n_blocks": "Residual blocks of each network.",
    "batch_size": (
        'int or "auto"',
        'Rows per training step. ``"auto"`` chooses it together with `max_epochs`; at most 128 for images.',
    ),
    "max_epochs": (
        'int or "auto"',
        'Maximum number of epochs. ``"auto"`` targets about 2,500 steps, shared between both '
        "initialisations of a self-masking model on large tables.",
    ),
    "patience": "Training stops after this many epochs without an improvement.",
    "validation_fraction": (
        "The fraction of rows held out to choose the best epoch and to calibrate intervals. "
        "Tables with fewer than 50 rows hold out none."
    ),
    "n_starts": (
        "The number of trainings, of which the one with the best held-out bound is kept. "
        "Self-masking models are trained twice as often: half start from a probit model of the "
        "mechanism, half from a model in which all values beyond the observed range are missing."
    ),
    "n_imputation_draws": (
        "Latent draws per row for imputation by importance sampling. `transform` and `interval` use "
        "fewer for rows whose effective sample size reaches a fifth of this number sooner."
    ),
    "n_chain_steps": (
        "Steps of a Markov chain (see `chain_kernel`) that `sample` applies to each draw after importance "
        "resampling, for rows with poor importance weights. `interval_inflation_` does not apply "
        "to such draws. Not for mixtures."
    ),
    "chain_kernel": (
        '{"mwg", "pseudo-gibbs", "ac-mwg"}',
        "The transitions of these chains: Metropolis within Gibbs, pseudo-Gibbs (approximate), or adaptive "
        "collapsed Metropolis within Gibbs (missing at random only).",
    ),
    "imputation": (
        '{"lair", "pseudo-gibbs", "mwg"}',
        'How the imputations of ``posterior="imputations"`` are updated in training: by draws from latents '
        "that are resampled by their weights (LAIR), from the latent of each imputation (pseudo-Gibbs), or "
        "by Metropolis within Gibbs.",
    ),
    "image_shape": (
        "tuple of int",
        "(H, W) or (C, H, W), with sides of at least 8, if X holds images: rows of pixels in this order, or "
        "arrays of shape (n_images, H, W) or (n_images, H, W, C). Networks are then "
        "convolutional, with one map per 4 units of `width`. All pixels have one kind, inferred from their "
        "values: binary, at most 256 grey levels (integers, or multiples of 1/255), or real numbers. Pixels "
        "that never change are modelled like the others. Models of missingness have one bias per "
        "pixel and share all other parameters; `signs` is one number.",
    ),
}

documented = documented_by(DESCRIPTIONS, IMPUTER_ATTRIBUTES)


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class LatentImputer(BaseLatentImputer):
    r"""Imputation by a deep latent-variable model, with all choices as parameters.

    .. math:: p(x_o, o) = \int p(z) \prod_{j \in o} p(x_j \mid z) \, p(o \mid x_o, z) \, dz

    Use it for tables with non-linear relations between columns, and for images. A decoder maps latent
    variables to the distribution of each column, and an encoder maps incomplete rows to an approximate
    posterior; both are trained by a lower bound on the likelihood. Both networks contain a linear path that
    is initialised by a factor analysis, so that training starts from a Gaussian model and adds non-linear
    terms as long as the held-out bound improves. Missing values are imputed by importance sampling. By
    default, values are assumed to be missing at random (MAR); `missingness` offers other models.
    `score_samples` returns a lower bound on :math:`\log p(x_o)`, which becomes tighter with more
    `n_imputation_draws`. No scale of the decoder is below a thousandth of the standard deviation of a column:
    near-copies of columns that would need a smaller one are imputed from each other by a linear relation.

    Attributes
    ----------
    model_ : torch.nn.Module
        The fitted model, a `LatentModel`, or None if no column is modelled. It has the networks ``encoder``
        and ``decoder``, the likelihood of cells ``observation`` and the model of the mask ``mask_model``.
    sampler_ : ImportanceSampler or ChainedSampler
        Draws the missing values given the observed ones from `model_`.
    history_ : History
        The loss (minus the bound) after each epoch, and the reason why training stopped.
    weight_diagnostics_ : dict
        Importance-weight diagnostics on some training rows: ``median_ess``, the median effective sample size,
        and ``unreliable``, the fraction of rows whose weights have a Pareto shape above 0.7.
    interval_inflation_ : list of float
        Factor, per numeric column, by which predictive scales are inflated so that 90% intervals reach 90%
        coverage on values removed from held-out rows. Empty with a model of missingness, for images, and
        without held-out rows.

    References
    ----------
    Mattei & Frellsen (2019), MIWAE. Ipsen, Mattei & Frellsen (2021), not-MIWAE. Simkus & Gutmann (2024),
    Improving variational autoencoder estimation from incomplete data with mixture variational families.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> first = rng.normal(size=100)
    >>> X = np.column_stack([first, 2 * first + 0.1 * rng.normal(size=100)])
    >>> X[::5, 1] = np.nan
    >>> imputer = LatentImputer(max_epochs=4, random_state=0).fit(X)
    >>> bool(abs(imputer.transform([[1.5, np.nan]])[0, 1] - 3.0) < 0.3)
    True
    """

    posterior: str = "gaussian"
    n_components: int = 5
    sampling: str = "ancestral"
    bound: str = "iwelbo"
    gradient: str = "stl"
    missingness: Any = Missingness.MAR.value
    signs: Any = None
    likelihoods: Any = None
    encoder: Any = "preimputed"
    n_starts: int = 1
    n_chain_steps: int = 0
    chain_kernel: str = "mwg"
    imputation: str = "lair"


@documented
class MVAEImputer(BaseLatentImputer):
    """Imputation by MVAE, a variational autoencoder for incomplete rows.

    The posterior is Gaussian, training maximises the ELBO, and values are assumed to be missing at random
    (MAR). `score_samples` returns a lower bound on the log-likelihood.

    References
    ----------
    Nazabal et al. (2020), Handling incomplete heterogeneous data using VAEs.
    """

    bound = "elbo"


@documented
class MIWAEImputer(BaseLatentImputer):
    """Imputation by MIWAE, an importance-weighted autoencoder for incomplete rows.

    The posterior is Gaussian, training maximises the importance-weighted bound, and values are assumed to be
    missing at random (MAR). `score_samples` returns a lower bound on the log-likelihood. Start with this
    method among the deep latent-variable models.

    References
    ----------
    Mattei & Frellsen (2019), MIWAE: deep generative modelling and imputation of incomplete data sets.
    """


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class NotMIWAEImputer(BaseLatentImputer):
    """Imputation by not-MIWAE: MIWAE with a model of the missingness mechanism.

    Use it for values that are missing because of their own size. By default, the probability that a value is
    missing is a logistic function of the value itself (MNAR). `score_samples` returns a lower bound on the
    log density of the observed values, without the mask, so it can be compared with other imputers.
    `mask_probabilities` returns the learned probabilities that values are missing.

    References
    ----------
    Ipsen, Mattei & Frellsen (2021), not-MIWAE: deep generative modelling with missing not at random data.
    """

    missingness: Any = Missingness.LOGISTIC.value
    signs: Any = None
    numeric: str = "gaussian"
    learning_rate: float = 3e-3
    n_starts: int = 1


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class MissVAEImputer(BaseLatentImputer):
    """Imputation by MissVAE, a variational autoencoder with a mixture posterior.

    Training draws from the mixture and maximises the ELBO. Values are assumed to be missing at random (MAR).
    `score_samples` returns a lower bound on the log-likelihood.

    References
    ----------
    Simkus & Gutmann (2024), Improving variational autoencoder estimation from incomplete data with mixture
    variational families.
    """

    posterior = "mixture"
    bound = "elbo"

    n_components: int = 5


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class MissSVAEImputer(BaseLatentImputer):
    """Imputation by MissSVAE, a variational autoencoder with a mixture posterior and stratified draws.

    Training draws from each component and maximises the stratified ELBO. Values are assumed to be missing at
    random (MAR). `score_samples` returns a lower bound on the log-likelihood.

    References
    ----------
    Simkus & Gutmann (2024); see `MissVAEImputer`.
    """

    posterior = "mixture"
    bound = "elbo"
    sampling = "stratified"

    n_components: int = 5


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class MissIWAEImputer(BaseLatentImputer):
    """Imputation by MissIWAE, an importance-weighted autoencoder with a mixture posterior.

    Training draws from the mixture and maximises the importance-weighted bound. Values are assumed to be
    missing at random (MAR). `score_samples` returns a lower bound on the log-likelihood.

    References
    ----------
    Simkus & Gutmann (2024); see `MissVAEImputer`.
    """

    posterior = "mixture"

    n_components: int = 5


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class MissSIWAEImputer(BaseLatentImputer):
    """Imputation by MissSIWAE, an importance-weighted autoencoder with a mixture posterior, stratified.

    Training draws from each component and maximises the stratified importance-weighted bound. Values are
    assumed to be missing at random (MAR). `score_samples` returns a lower bound on the log-likelihood.

    References
    ----------
    Simkus & Gutmann (2024); see `MissVAEImputer`.
    """

    posterior = "mixture"
    sampling = "stratified"

    n_components: int = 5


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class DeMissVAEImputer(BaseLatentImputer):
    """Imputation by DeMissVAE, whose decoder and encoder are trained by separate bounds.

    The posterior of a row is the mixture of the posteriors of its `n_draws` imputations, which are kept from
    epoch to epoch and redrawn from the model by the algorithm `imputation`. Afterwards an encoder for
    incomplete rows is trained for the finished decoder, and missing values are imputed as by the other
    methods. Values are assumed to be missing at random (MAR). `score_samples` returns a lower bound on the
    log-likelihood.

    References
    ----------
    Simkus & Gutmann (2024), Improving variational autoencoder estimation from incomplete data with mixture
    variational families, section 4.2.
    """

    posterior = "imputations"

    imputation: str = "lair"
