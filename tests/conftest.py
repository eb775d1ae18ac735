"""What holds for every test."""

from __future__ import annotations

from hypothesis import settings

# A busy machine is no fault of an example; what must not take long is measured where that is said.
settings.register_profile("slumberd", deadline=None)
settings.load_profile("slumberd")
