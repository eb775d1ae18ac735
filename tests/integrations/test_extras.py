"""An adapter needs its extra, and nothing else of slumberd needs an adapter."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from slumberd.model.errors import ExtraMissingError

pytestmark = pytest.mark.integration

ADAPTERS = [
    pytest.param("langgraph", "langgraph.store.base", "langgraph", id="langgraph"),
    pytest.param("langgraph_messages", "langchain_core.callbacks", "langgraph", id="messages"),
    pytest.param("openai_agents", "agents", "openai", id="openai"),
    pytest.param("claude_memory", "anthropic.lib.tools", "claude", id="claude"),
]


@pytest.mark.parametrize(("adapter", "package", "extra"), ADAPTERS)
def test_adapter_without_its_extra_is_an_error_that_names_it(
    monkeypatch: pytest.MonkeyPatch, adapter: str, package: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"slumberd.integrations.{adapter}", raising=False)

    with pytest.raises(ExtraMissingError, match=rf"pip install 'slumberd\[{extra}\]'"):
        importlib.import_module(f"slumberd.integrations.{adapter}")


@pytest.mark.nightly
def test_command_line_and_library_import_no_framework() -> None:
    program = (
        "import sys, slumberd, slumberd.adapters, slumberd.cli.commands.run\n"
        "_ = slumberd.Memory\n"
        "print(*{name.split('.')[0] for name in sys.modules})"
    )

    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert "slumberd" in run.stdout.split()
    assert {"agents", "anthropic", "langchain_core", "langgraph"}.isdisjoint(run.stdout.split())
