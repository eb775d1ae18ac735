"""Write every generated file of the repository: ``python -m tests.support.generated_files``.

A test fails while one of these files is not current. Each module also runs alone.
"""

import subprocess
import sys

WRITERS = (
    "docs.generate",
    "tests.support.answer_stories",
    "tests.support.defaults",
    "tests.support.error_messages",
    "tests.support.guarantees",
    "tests.support.schemas",
)

if __name__ == "__main__":
    for name in WRITERS:
        subprocess.run([sys.executable, "-m", name], check=True)
