"""Simulated problems whose optimal predictions are known in closed form or by quadrature."""

from papers.problems.classification import GaussianClassificationProblem
from papers.problems.gaussian import GaussianProblem
from papers.problems.gaussian_score import GaussianScore
from papers.problems.health import HealthScreening
from papers.problems.links import Bowl, Break, Linear, Logistic, Probit, Wave
from papers.problems.probit import BayesEstimate
from papers.problems.problem import ImputationProblem, Problem, Sample
from papers.problems.toys import CorrelatedGaussian, MixtureOfGaussians, Ring

__all__ = [
    "BayesEstimate",
    "Bowl",
    "Break",
    "CorrelatedGaussian",
    "GaussianClassificationProblem",
    "GaussianProblem",
    "GaussianScore",
    "HealthScreening",
    "ImputationProblem",
    "Linear",
    "Logistic",
    "MixtureOfGaussians",
    "Probit",
    "Problem",
    "Ring",
    "Sample",
    "Wave",
]
