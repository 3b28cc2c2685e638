"""The one kind of error that a user sees as a sentence instead of a traceback."""


class CellbedError(Exception):
    """Something the user can put right. The text says what was wrong, where, and what to do.

    exit_code: the exit status of the command that fails with it.
    """

    exit_code = 2
