"""Name the owners of entries as users of slumberd's stores, whose users are never empty."""

from __future__ import annotations

_MARK = "-"


def user_of(owner_id: str) -> str:
    """Return the user of an owner: the same text, or a marked one; different owners differ."""
    return owner_id if owner_id and not owner_id.startswith(_MARK) else _MARK + owner_id


def owner_of_user(user: str) -> str:
    """Return the owner whom `user_of` named."""
    return user.removeprefix(_MARK)
