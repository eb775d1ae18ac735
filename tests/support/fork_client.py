"""Run a command of slumberd as a fork: ``python -I -S fork_client.py SOCKET WORD...``.

`tests.support.forked_commands` listens at the socket, and forks. This program has the pid that a
shell knows. It passes signals on, and ends with the exit code of the command.
"""

import marshal
import os
import signal
import socket
import sys

_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def main() -> None:
    """Let the command run, and end as it ends."""
    mask = os.umask(0)
    os.umask(mask)
    place, *words = sys.argv[1:]
    folder = os.getcwd()  # noqa: PTH109 # pathlib takes longer to import
    call = marshal.dumps((words, dict(os.environ), folder, mask))
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(place)
        socket.send_fds(server, [len(call).to_bytes(4)], [0, 1, 2])
        server.sendall(call)
        answers = server.makefile("rb")
        pid = int(answers.readline())
        for number in _PASSED_ON:
            signal.signal(number, lambda number, _: os.kill(pid, number))
        code = int(answers.readline())
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


main()
