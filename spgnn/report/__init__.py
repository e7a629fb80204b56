"""HTML pages, pictures and tables of runs and studies."""
