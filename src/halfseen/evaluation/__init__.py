"""Judging imputations, and what is concluded from them."""
