"""What the package's commands say in one line, and their exit codes."""

import sys
from collections.abc import Callable


class InputError(Exception):
    """The trace, its sources or the log cannot be used; the message names the file, what is wrong and what to do."""


class RecordingError(RuntimeError):
    """The run that was to be recorded failed; what it says of that is on stderr."""


def exit_code(command: Callable[[], None]) -> int:
    """Run a command; whatever stops it is one line on stderr. Returns 0; 1 when the recorded run fails, 2 when an input
    cannot be used or a file not be written, 130 when interrupted."""
    try:
        command()
    except (InputError, OSError) as error:
        code, message = 2, str(error)
    except RecordingError as error:
        code, message = 1, str(error)
    except KeyboardInterrupt:
        code, message = 130, "interrupted; the files are as they were"
    else:
        return 0
    print(f"trace_page: {message}", file=sys.stderr)
    return code
