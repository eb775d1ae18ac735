"""Public names of the tiered memory; `slumberd.integrations.tiers` implements them."""

from slumberd.integrations.tiers import *  # noqa: F403
from slumberd.integrations.tiers import __all__ as __all__
