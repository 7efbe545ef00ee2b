"""Runs the program ``convlab`` that the package brings."""

import collections
import os
import signal
import subprocess
import sys
import threading

from .errors import EnvironmentError, Failed, InputError, Interrupted

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "convlab")


def main():
    """The console script ``convlab``: becomes the program."""
    os.execv(PROGRAM, ["convlab", *sys.argv[1:]])


class _Messages(threading.Thread):
    """Passes the program's stderr on to Python's, all but the last line, which may be an error."""

    def __init__(self, stream, shown):
        super().__init__(daemon=True)
        self.stream, self.shown, self.held = stream, shown, collections.deque()
        self.start()

    def run(self):
        for line in self.stream:
            self.held.append(line)
            if len(self.held) > 1:
                self._show(self.held.popleft())

    def _show(self, line):
        if self.shown:
            sys.stderr.write(line)
            sys.stderr.flush()

    def last(self):
        """The last line, without the program's name. Call it once the process has ended."""
        self.join()
        line = self.held.popleft() if self.held else ""
        return line.strip().removeprefix("convlab: ")

    def show_rest(self):
        self.join()
        while self.held:
            self._show(self.held.popleft())


class _Output(threading.Thread):
    """Reads all of stdout, also while the main thread handles Ctrl-C."""

    def __init__(self, stream):
        super().__init__(daemon=True)
        self.stream, self.text = stream, ""
        self.start()

    def run(self):
        self.text = self.stream.read()


def _wait(process):
    """Returns the exit code, and whether Ctrl-C was passed on. A second Ctrl-C kills the program."""
    interrupted = False
    while True:
        try:
            return process.wait(), interrupted
        except KeyboardInterrupt:
            if interrupted:
                process.kill()
            else:
                process.send_signal(signal.SIGINT)
            interrupted = True


def run(arguments, progress=True, parse=lambda text: text):
    """Runs the program and returns ``parse`` of its stdout.

    Its messages go to ``sys.stderr`` if ``progress``. Raises the class of ``convlab.errors`` that stands for
    its exit code; Failed and Interrupted have ``parse`` of what it printed in ``table``.
    """
    if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
        raise EnvironmentError("SIGCHLD is ignored, so the program's exit code would be lost: expected "
                               "signal.signal(signal.SIGCHLD, signal.SIG_DFL)")
    # In a session of its own, so that a terminal's Ctrl-C reaches the program once: through Python.
    try:
        process = subprocess.Popen(
            [PROGRAM, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, encoding="utf-8", errors="replace",
            start_new_session=True)
    except OSError as error:
        raise EnvironmentError(f"{PROGRAM}: {error.strerror}") from None
    except ValueError:
        raise InputError("an argument contains a zero byte: drop it") from None
    try:
        output, messages = _Output(process.stdout), _Messages(process.stderr, progress)
        code, interrupted = _wait(process)
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()
    output.join()
    if code == 0:
        messages.show_rest()
        return parse(output.text)
    if code in (1, 130) or interrupted:
        error = Interrupted if code != 1 else Failed
        error = error(messages.last() or ("interrupted" if code != 1 else "nothing was found"))
        if output.text:
            error.table = parse(output.text)
        raise error
    if code == 2:
        raise InputError(messages.last())
    if code == 3:
        raise EnvironmentError(messages.last())
    raise EnvironmentError(f"convlab {arguments[0]} ended with {code}: {messages.last()}")
