"""Run the cluster test: ``python -m tests.cluster SECONDS [--seed N] [--shards N] [--keep DIR]``.

Four daemons work on one PostgreSQL database, while putters, edits and erasures go on. Daemons are
killed and suspended past their lease, connections are cut, and the server is restarted. The clocks
of two daemons are an hour wrong, and one program puts through PgBouncer, where libfaketime and
PgBouncer are installed. At the end the log, the ledger and the facts are compared with what was
committed, and with the oracle.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.cluster.cluster_run import Cluster, pooler_before
from tests.support.postgres_server import running_server


def main() -> None:
    """Run as the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--seed", type=int, default=1, help="of all random choices")
    parser.add_argument("--shards", type=int, default=4, help="of the database")
    parser.add_argument("--keep", type=Path, help="a directory for the files of the hosts")
    options = parser.parse_args()
    with (
        TemporaryDirectory(prefix="slumberd-cluster-") as spare,
        running_server() as server,
        server.database(shards=options.shards) as name,
        pooler_before(server, name) as pooler,
    ):
        folder = options.keep or Path(spare)
        cluster = Cluster(server, server.address_of(name), folder, options.seed, pooler=pooler)
        figures = cluster.run(options.seconds)
    for name, value in asdict(figures).items():
        print(f"{name.replace('_', ' '):>24}: {value}")


if __name__ == "__main__":
    main()
