"""The one kind of error that a user sees as a sentence instead of a traceback."""


class CellbedError(Exception):
    """Something the user can put right. The text says what was wrong, where, and what to do.

    Messages repeat what was written; what a terminal would not show is escaped in them.
    exit_code: the exit status of the command that fails with it.
    """

    exit_code = 2

    def __str__(self) -> str:
        text = super().__str__()
        return "".join(each if each == "\n" or each.isprintable() else ascii(each)[1:-1] for each in text)
