"""Run the command line with ``python -m slumberd``."""

from slumberd.cli import main

if __name__ == "__main__":
    main()
