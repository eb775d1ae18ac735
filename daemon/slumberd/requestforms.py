"""The forms of requests: what each operation takes; anything else is refused before it runs."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field

from slumberd.config.validation import Form, problems
from slumberd.config.yaml_reader import dotted
from slumberd.control import Answer, Operation, Peer
from slumberd.errors import UsageError

_INSTANTS = 2**62
"""Microseconds around 1970; more is no instant of the calendar."""

Texts = list[str] | None
Instant = Annotated[int, Field(ge=-_INSTANTS, le=_INSTANTS)]


class RequestForm(Form):
    """What every request may say.

    Attributes:
        version: Of the protocol; checked before.
        operation: The operation's name.
        dry_run: Whether nothing is written.
        limit: How many deltas the answer lists at most.
    """

    version: int | None = None
    operation: str | None = None
    dry_run: bool = False
    limit: Annotated[int, Field(ge=0)] | None = None


class FireForm(RequestForm):
    """Of ``fire``: the ids of rules, and the plan of a dry run."""

    rules: Texts = None
    plan: str | None = None


class BackfillForm(RequestForm):
    """Of ``backfill``: the id of a rule, and two instants in microseconds since 1970 UTC."""

    rule: str
    between: Annotated[list[Instant], Field(min_length=2, max_length=2)] | None = None


class QuarantineForm(RequestForm):
    """Of ``retry``: the ids of rules and of episodes."""

    rules: Texts = None
    episodes: Texts = None


class DropForm(QuarantineForm):
    """Of ``drop``: the ids of episodes, or all of them."""

    all: bool = False


class UndoForm(RequestForm):
    """Of ``undo``: a firing, a run, or a rule from an instant on; and a channel of its store."""

    firing: str | None = None
    run: str | None = None
    rule: str | None = None
    since: Instant | None = None
    channel: str | None = None


class DecideForm(RequestForm):
    """Of ``decide``: a batch that was held, and whether it goes on."""

    firing: str
    channel: str | None = None
    approve: bool = False


class ForgetForm(RequestForm):
    """Of ``forget``: a scope."""

    user: str
    session: str | None = None
    agent: str | None = None


class PinForm(RequestForm):
    """Of ``pin``: a fact, and why."""

    user: str
    agent: str
    subject: str
    predicate: str
    object: Any = None
    reason: str
    id: str | None = None
    channel: str | None = None
    confidence: float = 1.0


class UnpinForm(RequestForm):
    """Of ``unpin``: the ids of facts, and why."""

    facts: list[str]
    reason: str


class RulesForm(RequestForm):
    """Of ``pause`` and ``resume``: the ids of rules."""

    rules: list[str]


def checked(name: str, form: type[BaseModel], operation: Operation) -> Operation:
    """Return an operation that refuses a request which is not of its form.

    An unknown key is refused, too: a misspelled ``dry_run`` must not erase anything.

    Raises:
        UsageError: By the operation; with everything that is wrong.
    """

    async def run(request: dict[str, Any], peer: Peer) -> Answer:
        if found := problems(form, request, strict=True):
            told = (f"{dotted(one.trail)}: {one.text}".removeprefix(": ") for one in found)
            raise UsageError(f"{name}: {'; '.join(told)}")
        return await operation(request, peer)

    return run
