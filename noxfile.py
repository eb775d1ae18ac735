"""Run every check in fresh environments: ``nox``."""

from pathlib import Path
from tempfile import TemporaryDirectory

import nox

nox.options.default_venv_backend = "uv|virtualenv"
nox.options.sessions = ["lint", "tests", "wheel"]


@nox.session
def lint(session: nox.Session) -> None:
    """Check format, rules, types and layers."""
    session.install("-e", ".[lint,test]")
    session.run("ruff", "format", "--check")
    session.run("ruff", "check")
    session.run("mypy")
    session.run("lint-imports")


@nox.session(python=["3.11", "3.12", "3.13"])
def tests(session: nox.Session) -> None:
    """Run the tests; words after ``--`` go to pytest."""
    session.install("-e", ".[test]")
    session.run("pytest", "-n", "auto", *session.posargs)


@nox.session
def wheel(session: nox.Session) -> None:
    """Build the wheel from the source distribution, install it and run it, as a user would."""
    session.install("build")
    installed = Path(session.virtualenv.location).resolve()
    with TemporaryDirectory() as dist:
        session.run("python", "-m", "build", "--outdir", dist)
        session.install("--force-reinstall", *map(str, Path(dist).glob("*.whl")))
        with session.chdir(dist):  # away from the source
            session.run("slumberd", "version")
            session.run("slumberd", "check", str(installed / "share/slumberd/rules"))
