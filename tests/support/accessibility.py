"""Check by axe-core that people with a keyboard, a screen reader or weak sight can use a page."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.browser import skip_without
from tests.support.late_imports import LateModule
from tests.support.repository import ROOT

if TYPE_CHECKING:
    import playwright.sync_api as playwright
else:
    playwright = LateModule("playwright.sync_api")


VARIABLE = "SLUMBERD_TEST_AXE"
"""The variable with the path of ``axe.min.js``; else it is in the checkout's ``node_modules``."""

VERSION = "4.14.1"
"""The version of axe-core; another version has other rules."""

_INSTALLED = ROOT / "node_modules" / "axe-core" / "axe.min.js"
_RUN = """
async () => (await axe.run(document, {resultTypes: ['violations', 'incomplete']})).violations
"""


def check_accessible(page: playwright.Page) -> None:
    """Fail for what axe-core finds on a page whose scripts may run.

    The test is skipped without axe-core, or fails where a browser is required.
    """
    page.evaluate(_script())
    found = [_sentence(finding) for finding in page.evaluate(_RUN)]
    assert not found, "\n".join(found)


def _script() -> str:
    file = Path(os.environ.get(VARIABLE) or _INSTALLED)
    remedy = f"npm install --no-save axe-core@{VERSION}, or set {VARIABLE} to its axe.min.js"
    if not file.is_file():
        skip_without(f"no axe-core: {remedy}")
    text = file.read_text()
    if f"axe v{VERSION}\n" not in text[:100]:
        skip_without(f"{file} is another version of axe-core: {remedy}")
    return text


def _sentence(finding: dict[str, Any]) -> str:
    elements = [node["html"][:200] for node in finding["nodes"]]
    return f"{finding['id']} ({finding['impact']}): {finding['help']}: {elements}"
