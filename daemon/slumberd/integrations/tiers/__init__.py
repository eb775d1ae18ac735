"""The tiered memory API: stores, back ends, search, working memory and consolidation.

It is thin: entries are episodes of slumberd's store, and facts are facts of its store.
"""
