"""HTTP and the Model Context Protocol, over the operations.

The modules here need the extra ``serve``. Only the command line imports them.
"""
