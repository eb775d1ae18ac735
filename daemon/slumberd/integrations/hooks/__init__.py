"""Hooks for coding agents: a memory before each prompt, and episodes after each answer.

A coding agent waits for its hooks, so the modules that a hook runs import little: no daemon, no
command line, and no package outside of the standard library.
"""
