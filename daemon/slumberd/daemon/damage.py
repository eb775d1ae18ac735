"""Find out whether a store is damaged, when it made a command fail."""

from __future__ import annotations

import asyncio

from slumberd.daemon.stores import inspections_of, open_facts_for_audit
from slumberd.model.errors import InstantRangeError, SchemaError, SlumberdError
from slumberd.rules.settings import Settings


def describe_damage(settings: Settings) -> str:
    """Return what is wrong with the stored facts and their ledger; an empty text for nothing.

    Call it outside of any event loop.
    """
    return asyncio.run(_describe(settings))


async def _describe(settings: Settings) -> str:
    try:
        facts = inspections_of(settings).facts
        if not (facts.exists() and facts.has_ledger()):
            return ""
        found = facts.damaged_values(None)
        if found:
            return found[0]
        async with open_facts_for_audit(settings) as store:
            _, _, broken = await store.verify()
    except (SchemaError, InstantRangeError) as error:
        return str(error)
    except SlumberdError:  # the store is out of reach, which is no damage
        return ""
    except Exception as error:  # noqa: BLE001 # an intact store is read to its end
        return f"it cannot be read to its end: {type(error).__name__}: {error}"
    if broken is None:
        return ""
    return f"the ledger is broken at row {broken.seq}: {broken.problem}"
