"""Turns an edtrace trace, a recording and the log of the real run into one HTML file that opens anywhere.

The folders are the way of the data: `record` runs a program on its ranks and notes what they do; `read` reads that
and the trace, and joins them; `draw` makes the page; `browser` holds the page's own script, style and template.
"""
