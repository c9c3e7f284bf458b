"""What happens inside a network: one measured quantity per file, read together in a probed step."""
