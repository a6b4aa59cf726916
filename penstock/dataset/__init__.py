"""Datasets in partitions and their lazy transformations, which become operations of an OpGraph (Ursa §4.1.2)."""

from penstock.dataset.dataset import Broadcast, Dataset, Result

__all__ = ["Broadcast", "Dataset", "Result"]
