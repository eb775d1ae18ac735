"""The daemon of one shard answers no request that names another."""

from __future__ import annotations

from typing import Any

import pytest

from slumberd.model.errors import UsageError
from slumberd.operations.caller import Caller
from slumberd.operations.handlers import Answer, refuse_other_shards


async def answer(request: dict[str, Any], _: Caller) -> Answer:
    return {"asked": request}


@pytest.mark.parametrize("request_", [{}, {"shard": 3}, {"shard": None}])
async def test_request_for_the_own_shard_is_answered(request_: dict[str, Any]) -> None:
    handlers = refuse_other_shards({"held": answer}, 3)

    assert await handlers["held"](request_, Caller(name="x")) == {"asked": request_}


@pytest.mark.parametrize("shard", [0, 4, "3"])
async def test_request_for_another_shard_is_refused(shard: object) -> None:
    handlers = refuse_other_shards({"held": answer}, 3)

    with pytest.raises(UsageError, match="is not here; this daemon has shard 3"):
        await handlers["held"]({"shard": shard}, Caller(name="x"))
