"""Who calls over HTTP: the user at the other end of a unix socket, or a token."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from slumberd.logs.late_log import LateLogger
from slumberd.model.errors import ConfigurationError, NotAuthenticatedError
from slumberd.operations.caller import Caller, Right
from slumberd.rules.file_access import find_secret
from slumberd.rules.validation import Form, mistakes_of
from slumberd.rules.yaml_reader import read_document

PREFIX = "slumberd_"
"""How each token begins, so that scanners for secrets find it."""

_RANDOM_BYTES = 32
_SETTING = "serve.tokens_file"
_SCHEME = "bearer"

_log = LateLogger()

Word = Annotated[str, Field(min_length=1, max_length=1_000)]


class Token(Form):
    """One entry of the file of tokens.

    Attributes:
        name: The name that the audit records.
        sha256: The hash of the token. A token is random, so a plain hash is enough.
        user: The only user that the token may name. null (default) means any.
        agent: The only agent that the token may name. null (default) means any.
        rights: Any of ``read``, ``write``, ``erase`` and ``operate``.
    """

    name: Word
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    user: Word | None = None
    agent: Word | None = None
    rights: Annotated[list[str], Field(min_length=1)]

    @model_validator(mode="after")
    def _check_rights(self) -> Self:
        known = [right.value for right in Right]
        if unknown := [right for right in self.rights if right not in known]:
            raise ValueError(f"unknown right {unknown[0]!r}; known are {', '.join(known)}")
        if Right.OPERATE in self.rights and (self.user, self.agent) != (None, None):
            raise ValueError("'operate' reaches every user; leave out 'user' and 'agent'")
        return self

    def caller(self) -> Caller:
        """Return who uses the token."""
        return Caller(
            name=f"token {self.name}",
            user=self.user,
            agent=self.agent,
            rights=frozenset(map(Right, self.rights)),
        )


class TokenFile(Form):
    """The file of tokens.

    Attributes:
        tokens: The tokens; each lets one program in.
    """

    tokens: list[Token]


def new_token() -> str:
    """Return a new random token."""
    return PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)


def hash_of(token: str) -> str:
    """Return what the file of tokens has of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def read_tokens(file: Path, *, credentials: Path | None) -> list[Token]:
    """Return the entries of a file of tokens.

    Args:
        file: The file; a relative path is relative to `credentials`.
        credentials: The directory of secrets of the service manager; None without one.

    Raises:
        ConfigurationError: The file cannot be read, others can read it, or it has mistakes.
    """
    document = read_document(find_secret(file, credentials=credentials, setting=_SETTING))
    if mistakes := mistakes_of(document, TokenFile):
        raise ConfigurationError(mistakes)
    return TokenFile.model_validate(document.value).tokens


class Access:
    """Finds out who calls.

    Args:
        file: The file of tokens; None without one.
        credentials: As `read_tokens`.

    Raises:
        ConfigurationError: As `read_tokens`.
    """

    def __init__(self, file: Path | None, *, credentials: Path | None = None) -> None:
        self._file = file
        self._credentials = credentials
        self._seen = self._stamp()
        self._callers = self._read()

    def caller_of(self, peer: Caller | None, authorization: str | None) -> Caller:
        """Return who calls.

        Args:
            peer: The user at the other end of a unix socket; None for a network.
            authorization: The header of that name. A token also counts on a unix socket, so a
                program can have fewer rights than its user.

        Raises:
            NotAuthenticatedError: There is no token, or it is unknown.
        """
        if authorization is None:
            if peer is None:
                raise NotAuthenticatedError("there is no token")
            return peer
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != _SCHEME:
            raise NotAuthenticatedError("the header Authorization is not of the scheme Bearer")
        return self.caller_of_hash(hash_of(token.strip()))

    def caller_of_hash(self, digest: str) -> Caller:
        """Return who has the token with this hash.

        Raises:
            NotAuthenticatedError: The file of tokens does not have it.
        """
        self._refresh()
        found: Caller | None = None
        # Every hash is compared in constant time, so the time tells nothing about the file.
        for known, caller in self._callers.items():
            if hmac.compare_digest(known, digest):
                found = caller
        if found is None:
            raise NotAuthenticatedError("the token is unknown")
        return found

    def _refresh(self) -> None:
        """Read the file again when it has changed; keep the old tokens when it has mistakes."""
        stamp = self._stamp()
        if stamp == self._seen:
            return
        self._seen = stamp
        try:
            self._callers = self._read()
        except ConfigurationError as error:
            _log.error("http.tokens_failed", error=type(error).__name__, message=str(error))

    def _read(self) -> Mapping[str, Caller]:
        if self._file is None:
            return {}
        tokens: Sequence[Token] = read_tokens(self._file, credentials=self._credentials)
        return {token.sha256: token.caller() for token in tokens}

    def _stamp(self) -> tuple[int, ...]:
        """Return what differs when the file has changed."""
        if self._file is None:
            return ()
        try:
            found = (self._credentials or Path()).joinpath(self._file).stat()
        except OSError:
            return ()
        return found.st_ino, found.st_size, found.st_mtime_ns
