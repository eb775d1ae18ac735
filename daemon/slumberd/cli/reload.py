"""`slumberd reload`: let the running daemon go by the rules that there are now."""

from __future__ import annotations

from slumberd.cli.context import settings_of
from slumberd.cli.options import Config, Json, StateDir
from slumberd.cli.output import print_json
from slumberd.cli.wording import plural
from slumberd.observability.line_format import printable
from slumberd.service.control_socket import Answer, ask


def reload(json: Json = False, config: Config = None, state_dir: StateDir = None) -> None:
    """Let the running daemon go by the rules that there are now: all of them, or none.

    The daemon reads its own configuration and rules again, and goes by them from the next batch on.
    When anything is wrong with them, every mistake is told, the daemon keeps the rules that it had,
    and the exit code is 1. Of the configuration a reload takes rules_dir, timezone and limits; what
    else has changed counts from the next start, and is told. A changed rule goes by its new form
    from now on; `slumberd backfill` takes it over what the rule has passed. With no daemon there is
    nothing to reload, and the exit code is 69.
    """
    answer = ask(settings_of(config, state_dir).state_dir, "reload")
    if json:
        print_json(answer)
    else:
        _tell(answer)


def _tell(answer: Answer) -> None:
    for what in ("added", "removed", "changed"):
        for rule_id in answer[what]:
            print(f"{what:<8} {printable(rule_id)}")
    for key in answer["restart_needed"]:
        print(f"{printable(key)} has changed, which counts from the next start of the daemon")
    counted = f"{plural(answer['rules'], 'rule')}, generation {answer['generation']}"
    print(f"reloaded: {counted}, hash {answer['rules_hash']}")
