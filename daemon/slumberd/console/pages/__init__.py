"""The pages of the console, in the order of the menu."""

from __future__ import annotations

from slumberd.console.changes import PATH as CHANGE
from slumberd.console.pages import episode, fact, health, search, today, user, users
from slumberd.console.pages.changing import submit
from slumberd.console.visit import Page
from slumberd.operations.caller import Caller, Right

PAGES = (
    Page(path="/today", menu="Today", show=today.show),
    Page(path="/search", menu="Search", show=search.show),
    Page(path="/users", menu="Users", show=users.show, own=False),
    Page(path="/user", menu="Facts", show=user.show, own=True),
    Page(path="/fact", show=fact.show),
    Page(path="/episode", show=episode.show),
    Page(path="/health", menu="Health", show=health.show, right=Right.OPERATE),
    Page(path=CHANGE, show=today.show, submit=submit),
)
"""All pages."""


def start_of(caller: Caller) -> str:
    """Return the page that a person sees first."""
    return "today" if caller.user is None or Right.READ in caller.rights else "search"
