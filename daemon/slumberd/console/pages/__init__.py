"""The pages of the console, in the order of the menu."""

from __future__ import annotations

from slumberd.console.changes import PATH as CHANGE
from slumberd.console.pages import (
    approvals,
    changed,
    changing,
    episode,
    erase,
    fact,
    firings,
    health,
    quarantine,
    rules,
    search,
    shards,
    today,
    user,
    users,
)
from slumberd.console.visit import Page
from slumberd.operations.caller import Caller, Right

PAGES = (
    Page(path="/today", menu="Today", show=today.show),
    Page(path="/changes", show=changed.show),
    Page(path="/users", menu="Users", show=users.show, own=False),
    Page(path="/user", menu="Facts", show=user.show, own=True),
    Page(path="/fact", show=fact.show),
    Page(path="/episode", show=episode.show),
    Page(path="/search", menu="Search", show=search.show),
    Page(path="/firings", menu="Firings", show=firings.show_list, right=Right.OPERATE),
    Page(path="/firing", show=firings.show_one, right=Right.OPERATE),
    Page(path="/approvals", menu="Approvals", show=approvals.show, right=Right.OPERATE),
    Page(path="/quarantine", menu="Quarantine", show=quarantine.show, right=Right.OPERATE),
    Page(path="/rules", menu="Rules", show=rules.show_list, right=Right.OPERATE),
    Page(path="/rule", show=rules.show_one, submit=rules.submit, right=Right.OPERATE),
    Page(path="/erase", menu="Erase", show=erase.show, submit=erase.submit, right=Right.ERASE),
    Page(
        path="/shards",
        menu="Shards",
        show=shards.show,
        right=Right.OPERATE,
        own=False,
        of_all_shards=True,
    ),
    Page(path="/health", menu="Health", show=health.show, right=Right.OPERATE),
    Page(path=CHANGE, show=changing.show, submit=changing.submit),
)
"""All pages."""


def start_of(caller: Caller) -> str:
    """Return the page that a person sees first: the first one in the person's menu."""
    return next((page.path for page in PAGES if page.is_in_menu_of(caller)), "/search")
