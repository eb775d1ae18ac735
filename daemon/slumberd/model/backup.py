"""The manifest of a backup and its files. Opens no file."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

Role = Literal["memory", "facts", "paused", "key"]


class SavedFile(BaseModel):
    """One file of a backup.

    Attributes:
        name: In the directory of the backup.
        role: Its content: episodes, facts, the paused rules, or the key of the ledger.
        bytes: Its size.
        sha256: The SHA-256 of its bytes, in hexadecimal.
        mode: The permissions of the original, as `chmod` takes them.
        uid: The number of its owner.
        gid: The number of its group.
        user: The name of its owner; empty when the owner has none.
        group: The name of its group; empty when the group has none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    # A plain name: a restored file must not leave its directory.
    name: Annotated[str, Field(pattern=r"^[a-z0-9-]+\.(db|json|key)$")]
    role: Role
    bytes: Annotated[int, Field(ge=0)]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    mode: Annotated[str, Field(pattern=r"^[0-7]{3}$")]
    uid: Annotated[int, Field(ge=0)]
    gid: Annotated[int, Field(ge=0)]
    user: str = ""
    group: str = ""


class LedgerHead(BaseModel):
    """How long a ledger is, and the head of its chain."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rows: int
    head: str


class Manifest(BaseModel):
    """The manifest of a backup; it is written last, so a backup without one is incomplete.

    Attributes:
        format: The version of this document.
        slumberd: The version that made the backup.
        at: The instant of the databases' content.
        files: All files.
        ledger: The head of the ledger; None when there is no ledger yet.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    slumberd: str
    at: AwareDatetime
    files: tuple[SavedFile, ...]
    ledger: LedgerHead | None
