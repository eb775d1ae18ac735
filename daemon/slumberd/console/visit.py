"""What a page gets, and what it returns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from slumberd.console.links import Fields
from slumberd.console.sessions import Session
from slumberd.errors import UsageError
from slumberd.operations.caller import Caller, Right
from slumberd.operations.handlers import Answer
from slumberd.operations.registry import OPERATIONS
from slumberd.service.interfaces import Served


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """One request of a person who is signed in.

    Attributes:
        served: The daemon.
        caller: The person.
        session: The person's session.
        path: The path of the page, without ``/console``.
        fields: The fields of the query, or of the form that was sent. An empty field is absent.
        shard: The shard that the page shows; None where there is one only, and for a person of one
            user.
    """

    served: Served
    caller: Caller
    session: Session
    path: str
    fields: Fields
    shard: int | None = None

    async def ask(self, operation: str, **fields: Any) -> Answer:
        """Run an operation as the person, and return its answer; a field of None is absent.

        What concerns no user concerns the shard that the page shows.
        """
        given = {name: value for name, value in fields.items() if value is not None}
        takes_shard = "shard" in OPERATIONS[operation].form.model_fields
        if self.shard is not None and takes_shard and "user" not in given:
            given["shard"] = self.shard
        return await self.served.dispatcher.call(operation, given, self.caller)

    def may(self, right: Right) -> bool:
        """Return whether the person has a right."""
        return right in self.caller.rights

    def need(self, name: str) -> str:
        """Return a field.

        Raises:
            UsageError: It is absent.
        """
        found = self.fields.get(name)
        if found is None:
            raise UsageError(f"{name}: is missing")
        return found

    def number(self, name: str, default: int) -> int:
        """Return a field that is a whole number.

        Raises:
            UsageError: It is another text.
        """
        text = self.fields.get(name)
        if text is None:
            return default
        try:
            return int(text)
        except ValueError:
            raise UsageError(f"{name}: {text[:40]!r} is not a whole number") from None


@dataclass(frozen=True, slots=True)
class View:
    """A page with its content.

    Attributes:
        template: The file in ``templates``.
        title: The title of the page.
        values: What the template shows.
        status: The status of the answer.
    """

    template: str
    title: str
    values: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200


@dataclass(frozen=True, slots=True)
class Redirect:
    """Another page that the browser shows instead.

    Attributes:
        to: Its address, as `links.link` returns it.
    """

    to: str


Shown = View | Redirect


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page.

    Attributes:
        path: Its path, without ``/console``.
        show: Answers a visit.
        submit: Answers a form that the page sends; None when it sends none.
        menu: Its name in the menu; empty when the menu does not list it.
        right: What a person needs to find it in the menu. The operations check the rights.
        of_all_shards: Whether the menu lists it only where a database has several shards.
        own: True when only a person of one user finds it there. False when only a person who may
            name any user does. None when both do.
    """

    path: str
    show: Callable[[Visit], Awaitable[Shown]]
    submit: Callable[[Visit], Awaitable[Shown]] | None = None
    menu: str = ""
    right: Right = Right.READ
    own: bool | None = None
    of_all_shards: bool = False

    def is_in_menu_of(self, caller: Caller) -> bool:
        """Return whether a person finds the page in the menu."""
        own = caller.user is not None
        return bool(self.menu) and self.right in caller.rights and self.own in (None, own)
