"""What the running daemon says of itself, without waiting for one that hangs."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from slumberd.diagnostics.finding import Finding
from slumberd.errors import NotRunningError, SlumberdError
from slumberd.service.control_socket import ask

PATIENCE_SECONDS = 5.0


def asked(
    directory: Path, operation: str = "status", *, seconds: float = PATIENCE_SECONDS
) -> tuple[Any, list[Finding]]:
    """Return what the daemon answers, None when none does; and what is wrong with it.

    Args:
        directory: The state directory that it runs on.
        operation: What is asked, by name.
        seconds: How long it may take to answer.
    """
    answers: list[dict[str, Any]] = []
    problems: list[str] = []

    def work() -> None:
        try:
            answers.append(ask(directory, operation))
        except NotRunningError:
            problems.append("")
        except (SlumberdError, OSError, ValueError) as error:
            problems.append(str(error))

    asking = threading.Thread(target=work, daemon=True)
    asking.start()
    asking.join(seconds)
    if answers:
        return answers[0], []
    problem = problems[0] if problems else f"does not answer within {seconds:g} s"
    remedy = "`systemctl restart slumberd`; its log says what it was at"
    return None, [Finding("daemon.silent", "daemon", problem, remedy)] if problem else []
