"""Metrics, in CNTK's names and signatures."""

from ._metrics import classification_error, edit_distance_error, ndcg_at_1

