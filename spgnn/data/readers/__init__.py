"""One reader per format, from published files to a Graph."""
