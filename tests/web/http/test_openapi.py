"""A real daemon answers whatever its OpenAPI document allows, and as the document says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from jsonschema import Draft202012Validator

from slumberd.operations.registry import OPERATIONS
from slumberd.web.http.gate import JSON, TRACES
from slumberd.web.http.openapi import openapi_document
from slumberd.web.http.routes import ROUTES
from slumberd.web.mcp.connection import PATH as MCP
from tests.support.http_daemon import HttpDaemon, http_daemon
from tests.support.late_imports import LateModule
from tests.support.sample_sizes import amount
from tests.support.waiting import PATIENCE_SECONDS

if TYPE_CHECKING:
    import schemathesis
    from schemathesis.specs.openapi import checks
else:
    schemathesis = LateModule("schemathesis")
    checks = LateModule("schemathesis.specs.openapi.checks")

WAITS = "seconds"
"""The field with which a request waits; a sample does not."""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpDaemon]:
    with http_daemon(tmp_path_factory.mktemp("http"), max_requests=1_000) as running:
        yield running


ENDLESS = "/v1/events"
"""The path whose answer does not end."""

LABELS = ["GET /healthz", "GET /metrics", "POST /mcp", "POST /v1/traces"] + [
    f"{route.method} {route.public_path}" for route in ROUTES if route.public_path != ENDLESS
]
"""The operations of the document, as schemathesis names them, and the pages beside them."""


@pytest.fixture(scope="module")
def described() -> dict[str, Any]:
    """Return what schemathesis reads of each operation in the document."""
    schema = schemathesis.openapi.from_dict(openapi_document()).exclude(path=ENDLESS)
    found: list[Any] = [*schema.get_all_operations()]
    return {each.ok().label: each.ok() for each in found}


@pytest.mark.slow
@pytest.mark.unit
def test_every_operation_of_the_document_is_called(described: dict[str, Any]) -> None:
    assert sorted(described) == sorted(LABELS)


@pytest.mark.acceptance
@pytest.mark.sampled
@pytest.mark.parametrize("label", LABELS)
def test_daemon_answers_as_its_document_says(
    label: str, daemon: HttpDaemon, described: dict[str, Any]
) -> None:
    # The document cannot say that a correction needs a value or `retract`, and the like.
    left_out: list[Any] = [checks.positive_data_acceptance]
    headers = {"Authorization": f"Bearer {daemon.tokens['operator']}"}

    @given(case=described[label].as_strategy())
    @settings(
        max_examples=amount(5, full=100), deadline=None, suppress_health_check=list(HealthCheck)
    )
    def check(case: schemathesis.Case[Any]) -> None:
        if isinstance(case.query, dict):
            case.query.pop(WAITS, None)
        case.call_and_validate(
            base_url=daemon.url, headers=headers, excluded_checks=left_out, timeout=PATIENCE_SECONDS
        )

    check()


@pytest.mark.unit
def test_every_operation_has_a_path() -> None:
    assert {route.operation.name for route in ROUTES} == set(OPERATIONS)


@pytest.mark.unit
def test_field_that_may_be_absent_is_not_required_by_generators() -> None:
    document = openapi_document()
    bodies = [
        content["schema"]
        for path in document["paths"].values()
        for described in path.values()
        for content in described.get("requestBody", {}).get("content", {}).values()
    ]
    found = [*_schemas_in(bodies), *_schemas_in([*document["components"]["schemas"].values()])]

    # A generator of types requires each field that has a default.
    assert len(found) > 500
    assert not [each for each in found if "default" in each]
    search = document["paths"]["/v1/search"]["post"]["requestBody"]["content"][JSON]["schema"]
    assert search["required"] == ["query"]
    assert search["properties"]["limit"]["description"].endswith("Default: 10.")
    assert document["components"]["schemas"]["TripleForm"]["required"] == ["subject", "predicate"]


def _schemas_in(schemas: list[Any]) -> Iterator[dict[str, Any]]:
    """Yield the schemas, and those inside them."""
    for schema in schemas:
        if isinstance(schema, dict):
            yield schema
            yield from _schemas_in([*schema.get("properties", {}).values()])
            yield from _schemas_in([schema.get(key) for key in ("items", "additionalProperties")])
            yield from _schemas_in([*schema.get("anyOf", []), *schema.get("prefixItems", [])])


@pytest.mark.unit
def test_document_names_its_server_and_every_path_of_programs() -> None:
    document = openapi_document()

    assert [server["url"] for server in document["servers"]] == ["/"]
    assert {TRACES, MCP, "/healthz", "/metrics", "/v1/events"} <= {*document["paths"]}
    assert {*document["paths"][TRACES]["post"]["requestBody"]["content"]} == {
        JSON, "application/x-protobuf",
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.unit
def test_operations_of_the_document_have_names_of_their_own() -> None:
    paths = openapi_document()["paths"]
    names = [described["operationId"] for path in paths.values() for described in path.values()]

    assert len(names) == len(set(names))


@pytest.mark.slow
@pytest.mark.unit
def test_answers_and_requests_of_the_table_fit_the_document() -> None:
    document = openapi_document()

    for route in ROUTES:
        described = document["paths"][route.public_path][route.method.lower()]
        content = described["responses"][str(route.status)]["content"]["application/json"]
        if route.shape == "whole":
            _check(document, content["schema"], dict(route.operation.example.answer))
        body = described.get("requestBody", {}).get("content", {}).get("application/json", {})
        if "example" in body:
            _check(document, body["schema"], body["example"])


def _check(document: dict[str, Any], schema: dict[str, Any], value: object) -> None:
    Draft202012Validator({**schema, "components": document["components"]}).validate(value)
