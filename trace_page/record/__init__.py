"""What records a run on real ranks; it needs only what the recorded program needs: torch."""

from trace_page.record.run import record, record_lecture

__all__ = ["record", "record_lecture"]
