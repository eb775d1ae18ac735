"""Run the cluster test: ``python -m tests.cluster SECONDS [--seed N] [--shards N] [--keep DIR]``.

Four daemons work on the shards of two PostgreSQL servers, while putters, edits, erasures and moves
of users go on. Daemons are killed and suspended past their lease, connections are cut, and servers
are restarted. Each server fails once, and its synchronous standby takes over. The clocks of two
daemons are an hour wrong, where libfaketime is installed. At the end the logs, the ledgers and the
facts are compared with what was committed, and with the oracle.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.cluster.cluster_run import cluster_on_pairs


def main() -> None:
    """Run as the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--seed", type=int, default=1, help="of all random choices")
    parser.add_argument("--shards", type=int, default=8, help="of both servers; an even number")
    parser.add_argument("--keep", type=Path, help="a directory for the files of the hosts")
    options = parser.parse_args()
    with TemporaryDirectory(prefix="slumberd-cluster-") as spare:
        folder = options.keep or Path(spare)
        with cluster_on_pairs(folder, options.seed, options.shards) as cluster:
            figures = cluster.run(options.seconds)
    for name, value in asdict(figures).items():
        print(f"{name.replace('_', ' '):>24}: {value}")


if __name__ == "__main__":
    main()
