"""What the tests of the console share: a real browser."""

from __future__ import annotations

from tests.support.browser import browser as browser
