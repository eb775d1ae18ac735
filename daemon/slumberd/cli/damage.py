"""Explain an unexpected error of a command by the damage of a store, when there is any."""

from __future__ import annotations

from slumberd.cli.context import used_settings
from slumberd.cli.exit_codes import is_unexpected
from slumberd.errors import DamagedStoreError
from slumberd.service.damage import describe_damage


def explain_by_damage(error: BaseException) -> BaseException:
    """Return an error that names the damage; the given error when the store is intact."""
    settings = used_settings()
    if settings is None or not is_unexpected(error):
        return error
    damage = describe_damage(settings)
    return DamagedStoreError(damage) if damage else error
