"""Probes on models that are not ours: where their blocks are, and one measured quantity per file."""
