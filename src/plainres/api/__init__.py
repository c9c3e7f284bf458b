"""What ``plainres.run``, ``plainres.load`` and ``plainres.evidence`` do: studies from Python and from notebooks."""
