"""The memory of one user, for programs: in process, or through the daemon."""

from slumberd.client.memory import Memory, Triple
from slumberd.client.sync_memory import SyncMemory

__all__ = ["Memory", "SyncMemory", "Triple"]
