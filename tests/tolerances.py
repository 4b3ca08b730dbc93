"""The tolerances of the whole suite, in one place: how close is equal, and how surprising is wrong."""

EXACT = 1e-10
"""For identities that hold exactly in real arithmetic, in float64."""

CONDITIONED = 1e-8
"""For float64 answers about a row beside other rows: sums in another order differ in the last place,
which columns that nearly determine each other amplify; the largest relative difference seen is 1e-9."""

QUADRATURE = 1e-6
"""For a closed form against an integral over a grid."""

FAILURE_RATE = 1e-5
"""The p-value below which a statistical test fails: once in 100,000 runs of a right program."""
