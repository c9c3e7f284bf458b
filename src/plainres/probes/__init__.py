"""What happens inside a network: one measured quantity per file, read together in a probed step.

``attach`` puts the same quantities on a model that is not ours.
"""

from plainres.probes.attached.session import Attached, attach
from plainres.probes.attached.sites import Site

__all__ = ["Attached", "Site", "attach"]
