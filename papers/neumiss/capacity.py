"""The capacity that NeuMiss networks need if values hide themselves: depth by rows by features.

Figure 5 of the supplement of the NeuMiss paper: networks of depth 0 to 9, trained with n = 10,000, 20,000 and
100,000 rows of d = 10, 20 and 50 features, under Gaussian (top) and probit self-masking (bottom), 20 data
sets of each. What is scored is the test R2 minus that of the best possible prediction on the same rows; under
probit self-masking, where the paper takes the best of its own methods for the reference, that is computed by
importance sampling. Networks are trained by our recipe and stopped on the paper's validation rows. The
figure has no numbers; of the best depth, the paper's published result files do (see `papers.neumiss`). The
scale "small" has 20,000 rows of 10 features and three seeds; of depths 1 and 5 under Gaussian self-masking it
has six, because the spread of three seeds said that six would decide which of them is better.

The claims are what the figure shows: layers help, and with many rows more layers help more. They were written
before any run of this experiment; runs of the experiment ``neumiss`` with the best of a few depths had been
seen.
"""

from collections.abc import Sequence
from functools import partial

from halfseen.words import Missingness
from papers.claims import Better
from papers.neumiss.depth import DEPTHS, network
from papers.neumiss.linear import score
from papers.neumiss.networks import TrainedNeuMiss
from papers.neumiss.task import GAP, make_task
from papers.spec import Budget, Experiment

SELF_MASKING = (Missingness.GAUSSIAN.value, Missingness.PROBIT.value)
ROWS, FEATURES = (10_000, 20_000, 100_000), (10, 20, 50)
FEW_DEPTHS = (0, 1, 3, 5)


def _small(n_seeds: int, depths: Sequence[int], mechanisms: Sequence[str]) -> Budget:
    return Budget.grid(
        n_seeds, models=[*map(network, depths)], mechanism=mechanisms, n=ROWS[1:2], d=FEATURES[:1]
    )


EXPERIMENT = Experiment(
    name="neumiss-capacity",
    question="How deep must a NeuMiss network be if values are missing because of their size?",
    paper="Le Morvan, Josse, Moreau, Scornet & Varoquaux (2020), NeuMiss networks, figure 5",
    make_data=make_task,
    models={network(depth): partial(TrainedNeuMiss, "2020", depth) for depth in DEPTHS},
    score=score,
    metrics={GAP: "higher"},
    budgets={
        "smoke": Budget.grid(1, models=[network(0), network(3)], mechanism=SELF_MASKING, n=[10_000], d=[10]),
        "small": _small(3, FEW_DEPTHS, SELF_MASKING[1:])
        + _small(3, (0, 3), SELF_MASKING[:1])
        + _small(6, (1, 5), SELF_MASKING[:1]),
        "paper": Budget.grid(20, mechanism=SELF_MASKING, n=ROWS, d=FEATURES),
    },
    claims=[
        claim
        for mechanism in SELF_MASKING
        for claim in (
            Better(network(3), network(0), on=GAP, where={"mechanism": mechanism, "n": ROWS[1:]}),
            Better(network(5), network(1), on=GAP, where={"mechanism": mechanism, "n": ROWS[1:]}),
            Better(network(5), network(1), on=GAP, where={"mechanism": mechanism, "n": ROWS[2], "d": 50}),
        )
    ],
)
