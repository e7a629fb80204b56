"""One reader a format, each from files as people have them to a Graph."""
