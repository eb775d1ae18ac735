"""What a backup holds, file by file. Opens none of them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

Role = Literal["memory", "facts", "paused", "key"]


class SavedFile(BaseModel):
    """One file of a backup.

    Attributes:
        name: In the directory of the backup.
        role: What it is: episodes, facts, the paused rules, the key of the ledger.
        bytes: Its size.
        sha256: Of its bytes, in hexadecimal.
        mode: The permissions of the original, as `chmod` takes them.
        uid: The number of its owner.
        gid: The number of its group.
        user: The name of its owner; nothing when the owner has none.
        group: The name of its group; nothing when the group has none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    # A plain name: what comes back from a backup must not lead out of its directory.
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
    """A backup. Its directory has one of these once it is complete, and not before.

    Attributes:
        format: Of this document.
        slumberd: The version that made the backup.
        at: The moment that the databases are of.
        files: All files.
        ledger: Of the database of facts; None when there is no ledger yet.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    slumberd: str
    at: AwareDatetime
    files: tuple[SavedFile, ...]
    ledger: LedgerHead | None
