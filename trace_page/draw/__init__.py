"""What draws the page: rows and narration as HTML, steps and values as tables for the scripts in `browser`."""
