"""A real headless Chromium, and what each visit of a test must not see.

The browser is Debian's; Playwright drives it and brings no browser of its own. Playwright's
synchronous interface leaves an event loop running in its thread, and then no other code of a test
can run one there. So it has a thread of its own. What a test holds are stand-ins that pass each
call on to that thread.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast
from urllib.parse import urljoin, urlsplit

import pytest

from tests.support.late_imports import LateModule
from tests.support.waiting import PATIENCE_SECONDS

if TYPE_CHECKING:
    import playwright.sync_api as playwright
else:
    playwright = LateModule("playwright.sync_api")


REQUIRED_VARIABLE = "SLUMBERD_REQUIRE_BROWSER"
"""The variable that turns a missing browser into a failure."""

PROGRAMS = ("chromium-headless-shell", "chromium")
"""Either serves. The first one draws no window: a visit takes a sixth of the processor time."""

MISSING = f"no {PROGRAMS[0]} on the path: apt install {PROGRAMS[0]} fonts-dejavu-core"
SIGN_IN_PATH = "/console/sign-in"
PATIENCE_MILLISECONDS = 1_000 * PATIENCE_SECONDS

_ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP *.test 127.0.0.1, MAP * ~NOTFOUND"
    ", EXCLUDE 127.0.0.1, EXCLUDE localhost",
]
_LOCAL_SCHEMES = ("about", "blob", "data")
_REPORT = "slumberdTestReport"
_REPORT_VIOLATIONS = f"""
document.addEventListener('securitypolicyviolation', event => window.{_REPORT}(
  `${{event.effectiveDirective}} refused ${{event.blockedURI || 'inline'}}`));
"""


def skip_without(problem: str) -> None:
    """Skip the test for a missing tool, or fail it where a browser is required."""
    if os.environ.get(REQUIRED_VARIABLE):
        pytest.fail(problem)
    pytest.skip(problem)


class _BrowserThread:
    """The thread that runs Playwright."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="browser")

    def run(self, work: Callable[..., Any], *positional: Any, **named: Any) -> Any:
        """Run a function there; return its result, with stand-ins for what is Playwright's."""
        there = [_original(each) for each in positional]
        named = {name: _original(each) for name, each in named.items()}
        return self._stand_in(self._executor.submit(work, *there, **named).result())

    def _stand_in(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._stand_in(each) for each in value]
        if type(value).__module__.startswith("playwright."):
            return _StandIn(self, value)
        return value

    def end(self) -> None:
        """End the thread."""
        self._executor.shutdown()


class _StandIn:
    """Passes each call to an object of Playwright on to its thread."""

    def __init__(self, thread: _BrowserThread, original: Any) -> None:
        self._thread = thread
        self._original = original

    def __getattr__(self, name: str) -> Any:
        found = self._thread.run(getattr, self._original, name)
        if isinstance(found, _StandIn) or not callable(found):
            return found
        return lambda *positional, **named: self._thread.run(found, *positional, **named)

    def __enter__(self) -> Any:
        return self._thread.run(self._original.__enter__)

    def __exit__(self, *problem: Any) -> None:
        self._thread.run(self._original.__exit__, *problem)


def _original(value: Any) -> Any:
    return value._original if isinstance(value, _StandIn) else value


def _expect(seen: _StandIn) -> Any:
    return seen._thread.run(playwright.expect, seen)


expect = cast("playwright.Expect", _expect)
"""Returns Playwright's assertions about a page or an element; they wait for what comes late."""


@dataclass
class Visit:
    """A page in a browser window of its own, without cookies of other visits.

    Attributes:
        page: The page, as Playwright shows it.
        origin: The only scheme, host and port that the page may ask.
        problems: What no page may do, in the order in which it happened.
    """

    page: playwright.Page
    origin: str
    problems: list[str] = field(default_factory=list)

    def open(self, path: str) -> playwright.Response:
        """Open a path of the origin; return the answer."""
        answer = self.page.goto(urljoin(self.origin, path))
        assert answer is not None, f"{path} is the page that is open"
        return answer

    def sign_in(self, token: str) -> None:
        """Sign in to the console with a token."""
        self.open(SIGN_IN_PATH)
        field = self.page.locator("[name=token]")
        field.fill(token)
        field.press("Enter")
        self.page.wait_for_url(lambda url: urlsplit(url).path != SIGN_IN_PATH)

    def take_picture(self, file: Path, *, whole: bool = True) -> Path:
        """Write a picture of the page to a PNG file, and return the file.

        Args:
            file: The file; its directories are made.
            whole: Whether to show the whole page, and not only the window.
        """
        file.parent.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=file, full_page=whole, animations="disabled", caret="hide")
        return file


class Browser:
    """A browser that is open for all tests of this process.

    Args:
        thread: The thread that runs Playwright.
        opened: Playwright's browser, in that thread.
    """

    def __init__(self, thread: _BrowserThread, opened: playwright.Browser) -> None:
        self._thread = thread
        self._opened = opened

    @contextmanager
    def visit(
        self,
        origin: str,
        *,
        color_scheme: Literal["light", "dark"] = "light",
        scripts: bool = True,
        size: tuple[int, int] = (1280, 800),
        tolerated: Sequence[str] = (),
    ) -> Iterator[Visit]:
        """Yield a new page; at the end of the block, fail for what no page may do.

        These are problems: console messages, errors of scripts, dialogs, violations of the content
        security policy, and requests to another origin. An answer above 399 is also a console
        message; a test that wants one tolerates it.

        Args:
            origin: Scheme, host and port of the pages.
            color_scheme: What the person prefers.
            scripts: Whether scripts run.
            size: Width and height of the window, in pixels.
            tolerated: Regular expressions; a problem in which one is found is none.
        """
        context = self._opened.new_context(
            color_scheme=color_scheme,
            java_script_enabled=scripts,
            viewport={"width": size[0], "height": size[1]},
            reduced_motion="reduce",
            locale="en-GB",
            timezone_id="UTC",
        )
        try:
            context.set_default_timeout(PATIENCE_MILLISECONDS)
            visit = Visit(cast("playwright.Page", None), origin)
            self._thread.run(_watch, context, visit)
            visit.page = context.new_page()
            yield from _checked(visit, tolerated)
        finally:
            context.close()


def _checked(visit: Visit, tolerated: Sequence[str]) -> Iterator[Visit]:
    """Yield a visit, and then assert that it had no problems that are not tolerated."""
    try:
        yield visit
        if not visit.page.is_closed():
            visit.page.title()  # what happened before this answer is known after it
    except Exception as error:
        if visit.problems:
            error.add_note(f"problems of the page: {visit.problems}")
        raise
    wrong = [
        problem
        for problem in visit.problems
        if not any(re.search(pattern, problem) for pattern in tolerated)
    ]
    assert not wrong, wrong


def _watch(context: playwright.BrowserContext, visit: Visit) -> None:
    """Record the problems of all pages of a window; in the browser's thread."""

    def note(problem: str) -> None:
        visit.problems.append(problem)

    def dismiss(dialog: playwright.Dialog) -> None:
        note(f"dialog: {dialog.message}")
        dialog.dismiss()

    def check_origin(request: playwright.Request) -> None:
        if not _belongs_to(request.url, visit.origin):
            note(f"request to another origin: {request.url}")

    context.on("console", lambda message: note(f"console {message.type}: {message.text}"))
    context.on("weberror", lambda problem: note(f"script failed: {problem.error}"))
    context.on("dialog", dismiss)
    context.on("request", check_origin)
    context.expose_binding(_REPORT, lambda _, text: note(f"content security policy: {text}"))
    context.add_init_script(_REPORT_VIOLATIONS)


def _belongs_to(url: str, origin: str) -> bool:
    asked, own = urlsplit(url), urlsplit(origin)
    return asked.scheme in _LOCAL_SCHEMES or (asked.scheme, asked.netloc) == (
        own.scheme,
        own.netloc,
    )


@contextmanager
def open_browser(program: str) -> Iterator[Browser]:
    """Yield a browser that runs until the end of the block.

    Args:
        program: The path of Chromium.
    """
    thread = _BrowserThread()
    driver = thread.run(lambda: playwright.sync_playwright().start())
    try:
        opened = driver.chromium.launch(executable_path=program, args=_ARGUMENTS)
        try:
            yield Browser(thread, opened)
        finally:
            opened.close()
    finally:
        driver.stop()
        thread.end()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Provide a browser for all tests of this process."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        skip_without(MISSING)
    else:
        with open_browser(program) as opened:
            yield opened
