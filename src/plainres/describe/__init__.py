"""What a network is, in words, read from its own parts and never from its settings. Nothing is trained."""
