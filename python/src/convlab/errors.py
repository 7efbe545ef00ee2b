"""An exception class for each exit code of the program ``convlab``. Messages are its one line."""


class Error(Exception):
    """Base of what convlab raises on purpose."""


class Failed(Error):
    """Exit code 1: a check failed, or no row of a table has an algorithm.

    ``table`` is what was found, a :class:`convlab.Table`, or None.
    """

    table = None


class InputError(Error, ValueError):
    """Exit code 2: invalid input. Says what, where, and what would be right."""


class EnvironmentError(Error, RuntimeError):
    """Exit code 3: the machine, or this build, cannot do it."""


class OutOfMemory(EnvironmentError, MemoryError):
    """Exit code 3: there is not enough memory."""


class Interrupted(KeyboardInterrupt):
    """Exit code 130: Ctrl-C. What was measured is kept in the tuning store.

    ``table`` is what was done, a :class:`convlab.Table`, or None.
    """

    table = None
