"""Run every check in fresh environments: ``nox``."""

from pathlib import Path
from tempfile import TemporaryDirectory

import nox

nox.options.default_venv_backend = "uv|virtualenv"
nox.options.sessions = ["lint", "tests", "docs", "wheel"]

LOCKS = {
    "run": [],
    "container": ["otlp", "postgres", "regex", "serve"],
    "test": ["test", "lint"],
    "english": ["english"],
    "docs": ["docs"],
    "release": ["release"],
}
"""The files of ``requirements/``, and the extras of ``pyproject.toml`` that each pins."""

RUN = ("--require-hashes", "-r", "requirements/run.txt")


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
    """Run the tests; arguments after ``--`` go to pytest."""
    session.install("-e", ".[test]")
    session.run("pytest", "-n", "auto", "--all", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation into ``site/``; fail for a broken link."""
    session.install("--require-hashes", "-r", "requirements/docs.txt")
    session.run("mkdocs", "build", "--strict", *session.posargs)


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


@nox.session
def lock(session: nox.Session) -> None:
    """Pin ``requirements/`` with hashes for every Python; ``-- --upgrade`` takes newer versions."""
    session.install("uv")
    for name, extras in LOCKS.items():
        chosen = [f"--extra={extra}" for extra in extras]
        constraint = [] if name == "run" else ["--constraint=requirements/run.txt"]
        if name == "english":  # its tests need both
            constraint.append("--constraint=requirements/test.txt")
        session.run(
            *("uv", "pip", "compile", "pyproject.toml", f"--output-file=requirements/{name}.txt"),
            *("--quiet", "--universal", "--python-version=3.11", "--generate-hashes"),
            *("--no-annotate", "--no-emit-index-url", "--custom-compile-command=nox -s lock"),
            "--no-strip-extras",  # without the extras, pip looks for newer versions
            *(*chosen, *constraint, *session.posargs),
        )


@nox.session
def sbom(session: nox.Session) -> None:
    """Write the bill of materials of a release to ``dist/slumberd.cdx.json``, as CycloneDX."""
    session.install(*RUN)
    session.install("--no-deps", ".")
    installed = Path(session.virtualenv.location, "bin", "python").absolute()
    Path("dist").mkdir(exist_ok=True)
    with TemporaryDirectory() as tools:
        session.run("python", "-m", "venv", tools, external=True)
        own = Path(tools, "bin")
        session.run(
            *(str(own / "pip"), "install", "-q", "--require-hashes"),
            *("-r", "requirements/release.txt"),
            external=True,
        )
        session.run(
            *(str(own / "cyclonedx-py"), "environment", "--output-reproducible"),
            *("--pyproject", "pyproject.toml", "-o", "dist/slumberd.cdx.json", str(installed)),
            external=True,
        )


@nox.session
def audit(session: nox.Session) -> None:
    """Look for known vulnerabilities of the versions that are pinned to run."""
    session.install("--require-hashes", "-r", "requirements/release.txt")
    session.run("python", "-m", "tests.support.supply_chain", "audit", "pip-audit")
