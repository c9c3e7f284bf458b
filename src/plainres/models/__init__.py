"""Networks: one Block, its branches, its connections."""
