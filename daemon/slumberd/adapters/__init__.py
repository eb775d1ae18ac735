"""The memory of slumberd behind the interfaces of agent frameworks.

Each module needs the extra that its docstring names. Nothing else of slumberd imports them.
"""
