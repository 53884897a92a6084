"""`python -m trace_page.record lecture_07` records a run on real ranks into var/traces."""

import sys

from trace_page.record.run import main

if __name__ == "__main__":
    sys.exit(main())
