"""HTML pages, tables and pictures of a run, of several runs, and of a study of partitions."""
