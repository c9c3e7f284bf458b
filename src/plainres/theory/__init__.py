"""Explanations of residual connections, measured on demand on the networks of a study. Nothing is trained."""
