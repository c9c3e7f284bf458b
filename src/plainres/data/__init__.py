"""Data sets, from their files to the batches of a step."""

from plainres.data.dataset import Dataset, load

__all__ = ["Dataset", "load"]
