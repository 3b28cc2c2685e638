"""Errors of Mahimahi's commands: exit status 1, as with the original."""

from cellbed.errors import CellbedError


class MahimahiError(CellbedError):
    """An error of a command; the text is a message for the user."""

    exit_code = 1


class UsageError(MahimahiError):
    """An invalid command line. usage: the usage text to print with the message."""

    def __init__(self, text: str, usage: str) -> None:
        super().__init__(text)
        self.usage = usage
