"""The operations, who may call them, and what runs them.

Every interface finds the operations in `slumberd.operations.registry`. Nothing here knows how a
request arrives.
"""
