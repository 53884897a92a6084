"""The one error that a reader of the command line sees."""


class InputError(Exception):
    """The trace, its sources or the log cannot be used; the message names the file, what is wrong and what to do."""
