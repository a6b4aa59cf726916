"""Datasets in partitions and what can be made of them, lazily: each becomes operations of an OpGraph (Ursa §4.1.2)."""

from penstock.dataset.dataset import Broadcast, Dataset, Result

__all__ = ["Broadcast", "Dataset", "Result"]
