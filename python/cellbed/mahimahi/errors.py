"""What ends a command of Mahimahi's with exit status 1, as the original does whatever went wrong."""

from cellbed.errors import CellbedError


class MahimahiError(CellbedError):
    """A sentence for the user."""

    exit_code = 1


class UsageError(MahimahiError):
    """A command line that cannot be read. usage: what to show before the sentence."""

    def __init__(self, text: str, usage: str) -> None:
        super().__init__(text)
        self.usage = usage
