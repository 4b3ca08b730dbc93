"""Laws that every imputer and predictor obeys, to be run on estimators of your own.

A law is a plain function that raises an AssertionError. ``check_imputer(MyImputer())`` runs all of them in
one line; ``@parametrize_with_laws([MyImputer()])`` makes one pytest test of each law.
"""

from halfseen.testing.checks import check_imputer, check_predictor, parametrize_with_laws

__all__ = ["check_imputer", "check_predictor", "parametrize_with_laws"]
