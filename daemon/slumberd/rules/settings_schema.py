"""The sections of the settings: their keys, types and bounds."""

from __future__ import annotations

import re
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from slumberd.model.capture.episodes import FORGET_THAT, FORGET_THIS, SecretMode
from slumberd.model.duration import Duration
from slumberd.model.episode import INTERFACES, is_visible
from slumberd.rules.validation import DatabaseAddress, FilePath, Form, Language, TemplateName

ADDRESS = r"^(\[[0-9a-fA-F:.]+\]|[^\s\[\]:]+):[0-9]{1,5}$"
"""A host or an address, and a port; an IPv6 address stands in brackets."""


HOST = r"^(?P<name>\[[0-9a-fA-F:.]+\]|[^\s\[\]:/?#@*\\]+)(:(?P<port>[0-9]{1,5}))?$"
"""A host, with or without a port, as in the header ``Host``."""


def listens_everywhere(address: str) -> bool:
    """Return whether an address with a port means all networks of the machine."""
    try:
        return ip_address(address.rpartition(":")[0].strip("[]")).is_unspecified
    except ValueError:  # a name
        return False


_MOST_PORT = 65_535


def _check_port(address: str) -> str:
    if int(address.rpartition(":")[2]) > _MOST_PORT:
        raise ValueError(f"a port is at most {_MOST_PORT}")
    return address


def _check_host(host: str) -> str:
    found = re.match(HOST, host)
    if found is None:
        raise ValueError(f"{host!r} is no host; write a name such as memory.example.com")
    try:
        ip_address(found["name"].strip("[]"))
    except ValueError:
        if host.startswith("["):
            raise ValueError(f"{host!r} has no IPv6 address in its brackets") from None
    return host


Address = Annotated[str, Field(pattern=ADDRESS), AfterValidator(_check_port)]

Host = Annotated[str, AfterValidator(_check_host)]

_MEBIBYTE = 1_048_576


class ServeSettings(Form):
    """The HTTP interface; it needs the extra ``serve``.

    Attributes:
        enabled: Whether the daemon serves HTTP. Default: false.
        socket: A unix socket, in the directory of the control socket. Its users have all rights, as
            on the control socket. null means none. Default: ``http.sock``.
        socket_mode: The mode of the socket: ``660`` (default) lets the group connect, ``600`` only
            the owner.
        address: A host and a port, such as ``127.0.0.1:8750`` or ``[::1]:8750``; callers need a
            token. Use ``0.0.0.0`` only behind a proxy with TLS. null (default) means none.
        tokens_file: The file of tokens, which ``slumberd token new`` makes lines for. Its mode is
            600. A relative path is relative to $CREDENTIALS_DIRECTORY. null (default) means none.
        console: Whether the daemon serves the web console under ``/console``. People sign in with a
            token, or over the socket as an account of the host. Default: true.
        hosts: Names under which clients and proxies reach the daemon, such as
            ``memory.example.com``; with a port, only that one. ``localhost``, ``127.0.0.1``,
            ``[::1]``, ``slumberd`` and the host of ``address`` are always served. Default: none.
        allowed_hosts: The older name of ``hosts``; its values count, too. Default: none.
        allowed_origins: Values of the header ``Origin`` that are answered beside the daemon's own
            hosts, such as ``https://agents.example.com``; never by the console. Default: none.
        max_body_bytes: The largest body of a request, 1024 to 67108864. Default: 4194304.
        max_connections: Connections of the network at a time, and as many of the unix socket, 1 to
            10000. Default: 256.
        max_requests: Requests at a time, 2 to 1000. One caller may have half of the places that
            others leave, and a quarter is kept for operators. Streams have as many places of their
            own, and callers without a token half as many. Default: 64.
        timeout_seconds: How long a client may take to send a request, or to read an answer, and how
            long an operation may only read, 0.1 to 3600. Default: 30.
    """

    enabled: bool = False
    socket: FilePath | None = Path("http.sock")
    socket_mode: Literal[600, 660] = 660
    address: Address | None = None
    tokens_file: FilePath | None = None
    console: bool = True
    hosts: list[Host] = Field(default_factory=list)
    allowed_hosts: list[str] = Field(default_factory=list)
    allowed_origins: list[str] = Field(default_factory=list)
    max_body_bytes: int = Field(default=4 * _MEBIBYTE, ge=1024, le=64 * _MEBIBYTE)
    max_connections: int = Field(default=256, ge=1, le=10_000)
    max_requests: int = Field(default=64, ge=2, le=1_000)
    timeout_seconds: float = Field(default=30.0, ge=0.1, le=3600, allow_inf_nan=False)


def check_url(url: str) -> str:
    """Return the address of a server.

    Raises:
        ValueError: It is malformed, or holds more than an address.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("an address such as http://127.0.0.1:11434/v1 is needed")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError("leave out user, password and query; 'key_file' names the secret")
    return url


Price = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class BudgetSettings(Form):
    """What the calls of language models may cost in a day, UTC. Failed calls count, too.

    When it is spent, episodes wait until the next day; nothing is lost.

    Attributes:
        calls: The most requests, 0 or more; null means no limit. Default: 200.
        tokens: The most tokens of requests and answers, 0 or more; null means no limit. The last
            call may exceed it. Default: 500000.
        cost: The most cost, in the currency of ``price_in`` and ``price_out``; null (default) means
            no limit. The last call may exceed it.
    """

    calls: int | None = Field(default=200, ge=0)
    tokens: int | None = Field(default=500_000, ge=0)
    cost: float | None = Field(default=None, ge=0, allow_inf_nan=False)


class LanguageModelSettings(Form):
    """The server that the stage ``extract: {with: openai}`` of rules asks.

    Attributes:
        base_url: The address of a server with OpenAI's chat completions, up to ``/v1``. null
            (default) means none: then no rule may ask a language model.
        key_file: A file with the server's secret, one line. A relative path is relative to
            $CREDENTIALS_DIRECTORY. null (default) means no secret.
        timeout_seconds: How many seconds one answer may take, 0.1 to 3600. Default: 60.
        price_in: The price of a million tokens of requests, 0 or more. Default: 0.
        price_out: The price of a million tokens of answers, 0 or more. Default: 0.
        budget: What the calls may cost in a day.
    """

    base_url: Annotated[str, AfterValidator(check_url)] | None = None
    key_file: FilePath | None = None
    timeout_seconds: float = Field(default=60.0, ge=0.1, le=3600, allow_inf_nan=False)
    price_in: Price = 0.0
    price_out: Price = 0.0
    budget: BudgetSettings = BudgetSettings.model_construct()


def _check_speaker(name: str) -> str:
    if not is_visible(name):
        raise ValueError("a name with a visible character is needed")
    if name in INTERFACES:
        raise ValueError(f"{name!r} is an interface of slumberd, and speaks nothing")
    return name


Speaker = Annotated[str, AfterValidator(_check_speaker)]


class MemorySettings(Form):
    """Where slumberd reads episodes, and how it reads them.

    Attributes:
        path: The database of episodes. A relative path is relative to ``state_dir``. Default:
            ``memory.db``.
        synchronous: When a put is safe. ``normal`` (default) survives a crash of the process;
            ``full`` survives a power cut too, and takes 3 to 5 ms longer.
        scope_mismatch: How a row is treated whose scope key and content name different owners.
            ``quarantine`` (default) puts it into quarantine; ``trust_scope`` believes the scope
            key; ``trust_episode`` believes the content.
        naive_timestamps: How a timestamp without an offset is read. ``local`` (default) takes the
            time zone of the process that reads it; ``utc`` takes UTC; ``refuse`` makes `put` refuse
            it, and puts such rows of other programs into quarantine.
        future_tolerance: How far in the future an instant may lie. An episode that lies further
            ahead is reported, and rules evaluate it when its instant comes. A recorded instant
            further ahead is taken for one of a wrong clock. Seconds, or a number with s, m, h or d;
            more than 0, at most 366 days. Default: ``5m``.
        person: The speakers whose words are those of the user, 1 to 1000. A host that writes the
            node of its graph as ``source_node`` lists the nodes that carry the words of the person.
            Default: ``[user, human]``.
        poll_seconds: Seconds between two checks for writes of other programs, 0.01 to 60. After 200
            checks without a write the interval is 1.6 times as long; in a PostgreSQL database, one
            second at least, since programs that use the library notify. Default: 0.05.
    """

    path: FilePath = Path("memory.db")
    synchronous: Literal["normal", "full"] = "normal"
    scope_mismatch: Literal["quarantine", "trust_scope", "trust_episode"] = "quarantine"
    naive_timestamps: Literal["local", "utc", "refuse"] = "local"
    future_tolerance: Duration = 300.0
    person: Annotated[list[Speaker], Field(min_length=1, max_length=1000)] = Field(
        default=["user", "human"]
    )
    poll_seconds: float = Field(default=0.05, ge=0.01, le=60, allow_inf_nan=False)


class FactsSettings(Form):
    """Where slumberd writes facts, and how it writes them.

    Attributes:
        path: The database of facts and their ledger. A relative path is relative to ``state_dir``.
            Default: ``facts.db``.
        lineage_depth: How many older assertions of its key the lineage of a fact names, newest
            first, 0 to 100. Default: 8.
        batch: How many episode versions one transaction consolidates, 1 to 50000. A larger batch is
            faster and needs more memory; the facts are the same. Default: 8000.
        key_file: A file with the key of the ledger, 16 to 4096 bytes. The key applies from the
            first row on, so it cannot be added, changed or removed later. A relative path is
            relative to $CREDENTIALS_DIRECTORY. null (default) means no key.
    """

    path: FilePath = Path("facts.db")
    lineage_depth: int = Field(default=8, ge=0, le=100)
    batch: int = Field(default=8000, ge=1, le=50_000)
    key_file: FilePath | None = None


LEASE_SECONDS = 10.0
"""The lease of a shard, where no configuration says another."""


class PostgresSettings(Form):
    """How slumberd uses the database that ``store`` names.

    Attributes:
        lease: How long the daemon holds the database without a renewal; then a standby takes over.
            Seconds, or a number with s, m, h or d; at least 3, at most 3600. Default: ``10s``.
        shard: The shard that this installation works on, 0 to 1023, in a database with several.
            null (default) means that of the user whom a command names, or of ``--shard``.
        rules: Where the rules come from. ``files`` (default) reads those in ``rules_dir``;
            ``published`` reads the newest set that ``slumberd rules publish`` wrote into the
            database.
        read_address: The address of a replica of that database. Operations that only read, such as
            search, run there once it has what was committed before. null (default) means none.
    """

    lease: Annotated[Duration, Field(ge=3, le=3600)] = LEASE_SECONDS
    shard: Annotated[int, Field(ge=0, le=1023)] | None = None
    rules: Literal["files", "published"] = "files"
    read_address: DatabaseAddress | None = None


class GraphSettings(Form):
    """The graph that rules of kind ``graph`` promote.

    Attributes:
        path: A Ladybug database, which slumberd only reads. A relative path is relative to
            ``state_dir``. null (default) means no graph.
    """

    path: FilePath | None = None


Words = Annotated[str, Field(min_length=1, max_length=200, pattern=r"\w")]


class CaptureSettings(Form):
    """What slumberd leaves out of texts before they become episodes.

    Attributes:
        secrets: What becomes of tokens, keys and passwords in known forms: ``mask`` (default)
            stores ``[masked KIND]`` in their place, ``keep`` stores them, and ``refuse`` stores
            nothing of a text that holds one. It holds for hooks, traces, imports, and every
            interface that remembers; not for rows that other programs write.
        forget_this: The words by which a person asks to leave out the turn in which they stand.
            A hook also leaves out the reply. An empty list means no words.
        forget_that: The words by which a person asks to leave out that turn and the one before.
            A hook also leaves out the replies to both. An empty list means no words.
    """

    secrets: SecretMode = "mask"
    forget_this: Annotated[list[Words], Field(max_length=100)] = Field(default=[*FORGET_THIS])
    forget_that: Annotated[list[Words], Field(max_length=100)] = Field(default=[*FORGET_THAT])


class LimitsSettings(Form):
    """The deletion limits: a command that exceeds one awaits approval.

    Attributes:
        max_deletes: How many facts one command may delete without replacing them, 0 or more: a
            firing, a backfill, or a retry of the quarantine. null means no limit. Default: 4000.
        max_delete_fraction: By which fraction of all facts one command may reduce them, 0 to
            1; added facts offset deleted ones. A reduction by 100 facts or fewer is always allowed.
            null means no limit. Default: 0.5.
        alarm_fraction: When so large a fraction of all facts, or of the facts of one user with more
            than 20, goes within 24 hours, whatever caused it, the daemon logs ``facts.reduced`` and
            ``slumberd status --check`` reports it, 0 to 1. When one command retracts so many, the
            daemon also logs ``facts.retracted``. What stages write does not count: marks, weights
            and summaries. null never reports either. Default: 0.2.
    """

    max_deletes: int | None = Field(default=4000, ge=0)
    max_delete_fraction: float | None = Field(default=0.5, ge=0, le=1, allow_inf_nan=False)
    alarm_fraction: float | None = Field(default=0.2, ge=0, le=1, allow_inf_nan=False)


class RetentionSettings(Form):
    """What slumberd deletes that its stages have archived; by default nothing.

    Attributes:
        purge_archived_after: How long an episode stays that a stage has marked as archived, or as a
            duplicate. Then slumberd deletes it, unless a current fact cites it. Seconds, or a
            number with s, m, h or d; more than 0, at most 366 days. null (default) means for ever.
    """

    purge_archived_after: Duration | None = None


class ErasureSettings(Form):
    """How slumberd removes the bytes of what ``slumberd forget`` erases.

    Attributes:
        rewrite: When the daemon rewrites the databases, which removes old bytes: ``now`` (default)
            before the answer, ``idle`` once no program has written episodes for a minute, at the
            latest after a day. Other programs cannot write meanwhile. Without a daemon, the command
            does it at once.
    """

    rewrite: Literal["now", "idle"] = "now"


class SearchSettings(Form):
    """How ``slumberd search`` and ``slumberd context`` find episodes and facts.

    Attributes:
        language: The language of the texts, in English, such as ``english`` or ``german``: the
            forms of a word then count as one. ``auto`` (default) recognises the languages of each
            scope by their most frequent words. null compares words as they are.
        vectors: Whether the meanings of texts count beside their words. Needs the extra
            ``vectors``, whose model knows English. Default: false.
        max_index_bytes: About how much memory the indexes of episodes and facts may take together,
            in each process that searches, 1048576 or more. Those of the users whose memory was
            searched longest ago go first. The saved indexes may take as much on the disk.
            Default: 268435456.
    """

    language: Language | None = "auto"
    vectors: bool = False
    max_index_bytes: int = Field(default=256 * _MEBIBYTE, ge=_MEBIBYTE)


class LoggingSettings(Form):
    """What the daemon logs, in which format, and where.

    Attributes:
        format: ``json`` writes one JSON object a line; ``console`` writes lines for people;
            ``auto`` (default) is ``console`` on a terminal and ``json`` elsewhere.
        level: The lowest level that is logged: ``debug``, ``info`` (default), ``warning`` or
            ``error``. Deltas are logged at ``info``, quarantined episodes at ``warning``.
        file: A file that the daemon appends to. A relative path is relative to ``state_dir``. null
            (default) means standard error.
        scope: How the log line of a delta names user and agent. ``full`` (default) writes them;
            ``hashed`` writes a hash with a random key of the fact store; ``none`` writes null.
    """

    format: Literal["auto", "json", "console"] = "auto"
    level: Literal["debug", "info", "warning", "error"] = "info"
    scope: Literal["full", "hashed", "none"] = "full"
    file: FilePath | None = None


class MetricsSettings(Form):
    """Metrics for Prometheus.

    Attributes:
        textfile: A file for node_exporter's textfile collector, which each heartbeat (every 60 s)
            replaces. A relative path is relative to ``state_dir``. null (default) means none.
    """

    textfile: FilePath | None = None


class ProvenanceSettings(Form):
    """The sink that receives every promotion of a fact, with its provenance.

    Attributes:
        sink: ``file`` appends a line of JSON for each promotion; ``fathom`` asserts each one in a
            Fathom engine in the daemon's process, and needs the extra ``fathom``. null (default)
            means no sink.
        template: The name of a promotion, 1 to 64 of a-z, 0-9, '.', '_' and '-'. In the engine each
            dot becomes '-'. Default: ``slumberd.fact``.
        file: The file of the sink ``file``. A relative path is relative to ``state_dir``. Default:
            ``provenance.jsonl``.
        pack: The directory of rules of the sink ``fathom``. A relative path is relative to
            ``state_dir``. null (default) means no rules.
        timeout_seconds: How many seconds the sink may take to answer, 0.1 to 3600. Default: 10.
        retry_seconds: The longest pause between two attempts after failures, in seconds, 1 to
            86400. The first pause is 1 s, and each one is twice as long. Default: 300.
    """

    sink: Literal["file", "fathom"] | None = None
    template: TemplateName = "slumberd.fact"
    file: FilePath = Path("provenance.jsonl")
    pack: FilePath | None = None
    timeout_seconds: float = Field(default=10.0, ge=0.1, le=3600, allow_inf_nan=False)
    retry_seconds: float = Field(default=300.0, ge=1, le=86_400, allow_inf_nan=False)
