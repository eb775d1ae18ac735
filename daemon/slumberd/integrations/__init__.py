"""slumberd inside other systems: agent frameworks, coding agents, memory APIs, and their files.

Only the command line and the web import them. Each adapter needs the extra that its docstring
names.
"""
