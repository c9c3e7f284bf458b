"""Data sets as tensors in memory."""

from plainres.data.dataset import Dataset, load

__all__ = ["Dataset", "load"]
