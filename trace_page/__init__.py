"""Turns an edtrace trace and the log of the real run into one HTML file that opens anywhere."""
