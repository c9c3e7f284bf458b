"""plainres: does depth make a network harder to optimise, and does a way of joining branch and trunk cure it?"""

__version__ = "0.1.0"
