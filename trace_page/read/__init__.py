"""What reads traces, recordings, logs and sources, checks them, and joins them to one course of steps."""
