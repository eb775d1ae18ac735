"""Graph queries that build huge values are refused, in a real process with measured memory."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import orjson
import pytest

from tests.support.daemons import Home, resident_mebibytes
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.integration

MOST_MEBIBYTES = 1_000
PROGRAM = """
import asyncio, json, sys
from slumberd.model.errors import StoreError
from slumberd.workers.graph.ladybug_store import LadybugGraphStore
from tests.support.waiting import PATIENCE_SECONDS

async def main(path, queries):
    graph = LadybugGraphStore(path, timeout_seconds=5)
    await graph.bootstrap()
    for number in range(20):
        await graph.add_triple(f"subject {number}", "likes", f"object {number}")
    for query in queries:
        try:
            print(len((await graph.query(query)).rows), flush=True)
        except StoreError as error:
            print(getattr(error, "rule", error), flush=True)
    await graph.close()

asyncio.run(main(sys.argv[1], json.loads(sys.argv[2])))
"""


def repeated(seed: str, combine: str, *, before: str = "", times: int = 9) -> str:
    """Return a query in which each step repeats the value of the previous step ten times."""
    steps = [f"WITH {combine.format(*[f'v{step}'] * 10)} AS v{step + 1}" for step in range(times)]
    return " ".join([f"{before}WITH {seed} AS v0", *steps, f"RETURN v{times} AS n"])


SUM = "+".join(["{}"] * 10)
HOSTILE = {
    "a range": "UNWIND range(1, 10000000000) AS x RETURN count(*)",
    "a range in a function": "RETURN size(range(1, 1000000000)) AS n",
    "a range in a condition": "MATCH (n) WHERE size(range(1, 1000000000)) > 3 RETURN n.name",
    "a range backwards": "RETURN size(range(1000000000, 1, -1)) AS n",
    "a range to a computed end": "RETURN size(range(1, 10 * 100000000)) AS n",
    "a range to a variable": "WITH 1000000000 AS n UNWIND range(1, n) AS x RETURN count(*)",
    "a range to a property": "MATCH (n) RETURN size(range(1, size(n.name) * 100000000)) AS n",
    "a range in backticks": "RETURN size(`range`(1, 1000000000)) AS n",
    "texts joined again and again": repeated("'aaaaaaaaaa'", SUM),
    "properties joined": repeated("n.name", SUM, before="MATCH (n) "),
    "lists joined": repeated("[1, 2, 3]", SUM),
    "lists of lists": repeated("'aaaaaaaaaa'", "[" + ",".join(["{}"] * 10) + "]"),
    "maps of maps": repeated("'aa'", "{{" + ",".join(f"{c}: {{}}" for c in "abcdefghij") + "}}"),
    "joined in a CASE": repeated("'aaaaaaaaaa'", f"CASE WHEN true THEN {SUM} ELSE '' END"),
    "what was collected, joined": (
        "UNWIND range(1, 100000) AS x UNWIND range(1, 30) AS y WITH collect(x) AS l"
        " RETURN size(l+l+l+l+l+l+l+l+l+l) AS n"
    ),
}
HARMLESS = {
    "RETURN size(range(1, 100000)) AS n": 1,
    "UNWIND range(-5, 100) AS x RETURN x": 106,
    "UNWIND range(1, 1000000000, 100000) AS x RETURN x": 10_000,
    "MATCH (n) RETURN n.name + ' ' + n.name + ' ' + n.name AS n": 40,
    "MATCH (n) WITH n.name AS a, n.name + '!' AS b WITH a + b AS c, b RETURN c + b AS n": 40,
    "MATCH (s)-[f]->(o) WITH s, collect(o.name) AS objects UNWIND objects AS name"
    " RETURN s.name AS subject, 'likes: ' + name + ', ' + name AS object": 20,
}


def output_of(folder: Path, queries: list[str]) -> list[str]:
    """Return the lines that a process prints; it fails above the limits of memory and time."""
    output = folder / "output"
    command = [
        sys.executable, "-c", PROGRAM, str(folder / "graph.lbug"), orjson.dumps(queries).decode(),
    ]  # fmt: skip
    with output.open("wb") as out, subprocess.Popen(command, stdout=out) as process:
        ends_at = time.monotonic() + PATIENCE_SECONDS
        while process.poll() is None:
            used = _resident_mebibytes(process)
            if used > MOST_MEBIBYTES or time.monotonic() > ends_at:
                process.kill()
                done = len(output.read_bytes().splitlines())
                pytest.fail(
                    f"{used:.0f} MiB, after {PATIENCE_SECONDS:g} s at most: {queries[done]}"
                )
            try:
                process.wait(timeout=0.05)
            except subprocess.TimeoutExpired:
                continue
    return output.read_text().splitlines()


def _resident_mebibytes(process: subprocess.Popen[bytes]) -> float:
    try:
        return resident_mebibytes(process.pid)
    except StopIteration:  # the process has ended
        return 0.0


@pytest.mark.cases(2)
@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_query_that_builds_a_huge_value_is_refused(tmp_path: Path, name: str) -> None:
    assert output_of(tmp_path, [HOSTILE[name]]) == ["unbounded-value"]


@pytest.mark.nightly
def test_queries_with_values_of_usual_size_are_answered(tmp_path: Path) -> None:
    assert output_of(tmp_path, [*HARMLESS]) == [*map(str, HARMLESS.values())]


@pytest.mark.nightly
def test_largest_accepted_value_is_built_in_little_memory(tmp_path: Path) -> None:
    at_the_bound = [
        repeated("'" + "a" * 100 + "'", SUM, times=3),
        repeated("n.name", SUM, before="MATCH (n) ", times=3),
        "UNWIND range(1, 100000) AS x WITH collect(x) AS l RETURN size(l + l) AS n",
        "MATCH (n) RETURN size(range(1, 100000)) AS n",
    ]

    assert output_of(tmp_path, at_the_bound) == ["1", "40", "1", "40"]


def test_check_reports_the_position_of_a_range_that_is_too_long(tmp_path: Path) -> None:
    home = Home(tmp_path, {"graph": {"path": "graph.lbug"}})
    (home.rules / "team.yaml").write_text("""\
rules:
  - id: team
    kind: graph
    cadence: {cron: "0 3 * * *"}
    user: alice
    agent: rag
    filter_cypher: "UNWIND range(1, 10000000000) AS x RETURN x AS subject"
""")

    checked = home.call("check", check=False)

    assert checked.returncode == 78
    assert "team.yaml:7:34: " in checked.stderr + checked.stdout
    assert "unbounded-value: a range has at most 100,000 numbers" in (
        checked.stderr + checked.stdout
    )
