"""The table of operations, who may call them, and what runs them.

Every interface finds its operations here: the control socket, HTTP, the Model Context Protocol and
programs. Nothing here knows how a request arrives.
"""
