"""The pages of the console, in the order of the menu."""

from __future__ import annotations

from slumberd.operations.caller import Caller, Right
from slumberd.web.console.changes import PATH as CHANGE
from slumberd.web.console.pages import changing, erase, facts, health, rules, search, today
from slumberd.web.console.visit import ConsolePage

PAGES = (
    ConsolePage(path="/today", menu="Today", show=today.show_today),
    ConsolePage(path="/changes", show=today.show_changed),
    ConsolePage(path="/users", menu="Users", show=facts.show_users, own=False),
    ConsolePage(path="/user", menu="Facts", show=facts.show_user, own=True),
    ConsolePage(path="/fact", show=facts.show_fact),
    ConsolePage(path="/episode", show=facts.show_episode),
    ConsolePage(path="/search", menu="Search", show=search.show),
    ConsolePage(path="/firings", menu="Firings", show=rules.show_firings, right=Right.OPERATE),
    ConsolePage(path="/firing", show=rules.show_firing, right=Right.OPERATE),
    ConsolePage(
        path="/approvals", menu="Approvals", show=rules.show_approvals, right=Right.OPERATE
    ),
    ConsolePage(
        path="/quarantine", menu="Quarantine", show=rules.show_quarantine, right=Right.OPERATE
    ),
    ConsolePage(path="/rules", menu="Rules", show=rules.show_rules, right=Right.OPERATE),
    ConsolePage(path="/rule", show=rules.show_rule, submit=rules.try_rule, right=Right.OPERATE),
    ConsolePage(
        path="/erase", menu="Erase", show=erase.show, submit=erase.submit, right=Right.ERASE
    ),
    ConsolePage(
        path="/shards",
        menu="Shards",
        show=health.show_shards,
        right=Right.OPERATE,
        own=False,
        of_all_shards=True,
    ),
    ConsolePage(path="/health", menu="Health", show=health.show_health, right=Right.OPERATE),
    ConsolePage(path=CHANGE, show=changing.show, submit=changing.submit),
)
"""All pages."""


def start_of(caller: Caller) -> str:
    """Return the page that a person sees first: the first one in the person's menu."""
    return next((page.path for page in PAGES if page.is_in_menu_of(caller)), "/search")
