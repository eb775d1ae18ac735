"""Import and build, once for all forks, what commands and daemons import and build when they start.

The fork server of `tests.support.forked_commands` imports this module. It leaves out the extras
that few tests use: a fork imports those by itself, as a new process does.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from importlib import import_module
from pkgutil import walk_packages

import pydantic

import slumberd
from slumberd.consolidation.extraction.statements_in_english import clause_expressions, expressions
from slumberd.rules.vocabulary_loader import shipped_vocabulary
from slumberd.web.http.openapi import openapi_json

_LEFT_OUT = ("adapters", "client", "contract", "entry", "integrations", "tiers", "__main__")


def import_modules() -> None:
    """Import all modules of slumberd but those that are left out, or lack what they import."""
    left_out = tuple(f"slumberd.{name}" for name in _LEFT_OUT)
    for module in walk_packages(slumberd.__path__, "slumberd."):
        if not module.name.startswith(left_out):
            try:
                import_module(module.name)
            except ModuleNotFoundError as error:
                if (error.name or "").startswith("slumberd"):
                    raise


def models(base: type[pydantic.BaseModel]) -> Iterator[type[pydantic.BaseModel]]:
    """Yield all models that have been defined so far."""
    for model in base.__subclasses__():
        yield model
        yield from models(model)


import_modules()
for model in models(pydantic.BaseModel):
    model.model_rebuild(raise_errors=False)
for build in (openapi_json, shipped_vocabulary, expressions, clause_expressions):
    build()
gc.collect()
gc.freeze()  # a collection in a fork would copy the memory of all that it looks at
