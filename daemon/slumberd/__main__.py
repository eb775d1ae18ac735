"""Run the command line with ``python -m slumberd``."""

from slumberd.entry import main

if __name__ == "__main__":
    main()
