"""Which tools there are, and which of them are for administrators only."""

from __future__ import annotations

from typing import Any, cast

import pytest

pytestmark = pytest.mark.unit


def test_tools_of_administrators_are_these() -> None:
    from slumberd.web.mcp.tools import TOOLS_BY_NAME

    admin = {name for name, tool in TOOLS_BY_NAME.items() if tool.admin}

    assert admin == {"status", "held", "fire", "approve", "reject", "undo"}


def test_server_has_the_name_of_the_product() -> None:
    from slumberd.web.mcp.server import server_of

    server = server_of(cast("Any", None))

    assert (server.name, server.title) == ("slumberd", "slumberd")
