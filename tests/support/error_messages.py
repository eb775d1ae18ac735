"""The message, the exit code and the fields of every error, built from sample arguments.

A test compares them with the table in `tests/errors.txt`. To write the table again, and see what
changed:

    python -m tests.support.error_messages && git diff tests/errors.txt
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, get_type_hints

from pydantic import ConfigDict, TypeAdapter

from slumberd.model import errors
from slumberd.model.errors import Mistake, SlumberdError
from tests.support.repository import TESTS

TABLE = TESTS / "errors.txt"

VALUES: dict[str, Any] = {
    "action": "read",
    "after": 7,
    "agent": "desk",
    "at": datetime(2036, 1, 1, tzinfo=UTC),
    "caller": "token laptop",
    "cause": OSError("no such file"),
    "consequence": "Cypher cannot be read",
    "count": 3,
    "current": 2,
    "cypher": "MATCH (n) RETURN apoc.id(n)",
    "damage": "table watermark, row 'tea': served is 9223372036854775807",
    "delta_type": "update",
    "detail": "its metadata is no JSON",
    "differing": ("search.language", "the rules"),
    "done": "erased",
    "episode": "e1",
    "episode_id": "e1",
    "episode_ids": ["e1", "e2"],
    "expected": 4,
    "extra": "graph",
    "fact": "f1",
    "fact_id": "f1",
    "fault": "encoding",
    "field": "when",
    "firing_id": "@erasure@7",
    "folder": "/srv/backups/2026-03-01",
    "format": "mem0",
    "further": (),
    "holder": "pid 412 on ada",
    "ids": ["e1", "e2"],
    "key": "turn 1",
    "is_deleted": True,
    "kind": "tokens",
    "kinds": {"github_token": 2, "password": 1},
    "last": 790,
    "limit": 2.5,
    "match": "apoc.id(n)",
    "named": 4,
    "mistakes": [Mistake("a.yaml", 1, 2, "rules[0]", "is wrong")],
    "microseconds": 2**63 - 1,
    "most": 64,
    "given_bytes": 2048,
    "most_bytes": 1024,
    "option": "serve.max_body_bytes",
    "newest": 5,
    "numbers": [12, 13],
    "operation": "put",
    "ours": 1,
    "path": "/srv/slumberd/slumberd.yaml",
    "place": "export.json:12",
    "position": 4,
    "problem": "cannot be read",
    "reason": "the address is in use",
    "remedy": "create it",
    "retry_seconds": 2.0,
    "row": 5,
    "rows": ["'e1'", "'e2'"],
    "rule": "unknown-function",
    "rule_id": "tea",
    "rules_dir": "/srv/slumberd/rules.d",
    "scope": ("alice", None, None),
    "seconds": 1.5,
    "seq": 12,
    "session": "s1",
    "shard": 3,
    "shards": [0, 1, 2],
    "slot": "subject",
    "source": 3,
    "spent": 3.0,
    "status": 404,
    "store": "sqlite_fact",
    "stores": {"facts": "another program reads an old state of 'facts.db'"},
    "table": "facts",
    "target": 5,
    "text": "a*b",
    "timeline": 1,
    "user": "alice",
    "versions": 3,
    "violation": "is held by another user",
    "waited_seconds": 1.5,
    "what": "fact 'f1'",
    "where": "postgresql://db.example.org:5432/slumberd",
    "whose": "token laptop",
    "written": 812,
}
"""A sample value for each name of an argument; its type is that of the argument."""

_OF_CLASS: dict[str, dict[str, Any]] = {
    "BackupBusyError": {"problem": "is being erased; back it up later"},
    "ConsolidationRuleError": {"violation": "source_episode_ids must be non-empty"},
    "DatabaseUnreachableError": {"problem": "connection refused"},
    "FilterError": {"violation": "no such column: usr"},
    "GraphStoreError": {"where": "/srv/slumberd/graph.lbug"},
    "InvalidAnswerError": {"problem": "it is no JSON"},
    "LedgerKeyError": {"problem": "the key belongs to another ledger"},
    "ListenError": {"where": "127.0.0.1:8080"},
    "MemoryScopeError": {"violation": "user is empty", "scope": ("", "desk", "s1")},
    "MigrationNotSupportedError": {"operation": "drop_column", "reason": "v1-add-column-only"},
    "ModelRequestError": {"where": "http://127.0.0.1:11434/v1", "problem": "no such model"},
    "ModelUnavailableError": {"where": "http://127.0.0.1:11434/v1", "problem": "HTTP 503"},
    "NotAllowedError": {"problem": "has no right to 'fire'"},
    "NotAuthenticatedError": {"problem": "the token is unknown"},
    "OutputExistsError": {"path": "facts.jsonl", "remedy": "move it away"},
    "PatternError": {"problem": "only the end may have a star"},
    "PromotionError": {"problem": "the object is missing"},
    "ProvenanceError": {"slot": "confidence", "reason": "has no exact form"},
    "RecordRefusedError": {"problem": "value.a is no plain value"},
    "RequestTimeoutError": {"operation": "recall"},
    "SchemaError": {"problem": "the schema is too new", "remedy": "install a newer slumberd"},
    "StateDirectoryLockedError": {"path": "/srv/slumberd"},
    "StoreClosedError": {"remedy": "open the memory again"},
    "StoreReplacedError": {"problem": "is another database now"},
    "UnknownHostError": {"host": "memory.example.com"},
    "UnportableCypherError": {"problem": "'apoc.id' is not known", "position": 17},
    "UnreadableEpisodeError": {"reason": "metadata_unreadable"},
    "UnreadableTracesError": {"problem": "the body is no JSON", "fault": "form"},
    "UnsupportedByStoreError": {"problem": "it has no shards", "remedy": "leave out --shard"},
    "VersionConflictError": {"remedy": "read the fact again"},
    "WrongFormatError": {"problem": "the line is no JSON"},
}
"""Values for classes that use a name in a sense of their own."""


def classes() -> list[type[SlumberdError]]:
    """Return every class of errors."""
    found = {kind for kind in vars(errors).values() if inspect.isclass(kind)}
    return sorted(
        (kind for kind in found if issubclass(kind, SlumberdError)), key=lambda kind: kind.__name__
    )


def construct(
    kind: type[SlumberdError], *, with_all: bool = False
) -> tuple[SlumberdError, dict[str, object]]:
    """Return an error of a class, and its constructor's arguments: the needed ones, or all."""
    if kind.__init__ in (Exception.__init__, SlumberdError.__init__):
        return kind("it failed"), {}
    parameters = [*inspect.signature(kind.__init__).parameters.values()][1:]
    samples = VALUES | _OF_CLASS.get(kind.__name__, {})
    types = get_type_hints(kind.__init__)
    given = {
        parameter.name: _checked(samples[parameter.name], types[parameter.name])
        for parameter in parameters
        if with_all or parameter.default is parameter.empty
    }
    return kind(**given), given


def _checked(value: object, kind: Any) -> object:
    """Return a value of a type; another one, such as a text for a list of texts, is an error."""
    settings = None if kind is Any else ConfigDict(arbitrary_types_allowed=True)
    TypeAdapter[object](kind, config=settings).validate_python(value, strict=True)
    return value


def all_messages() -> list[str]:
    """Return a line for each class, with the needed arguments, and one with all, if it differs."""
    return [line for kind in classes() for line in dict.fromkeys(_lines_of(kind))]


def _lines_of(kind: type[SlumberdError]) -> Iterator[str]:
    for with_all in (False, True):
        error, _ = construct(kind, with_all=with_all)
        yield f"{kind.__name__} (exit {kind.exit_code}): {error.message!r} {error.context}"


def main() -> None:
    """Write the table again."""
    TABLE.write_text("\n".join(all_messages()) + "\n")


if __name__ == "__main__":
    main()
