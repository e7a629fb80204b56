"""Pages, pictures and tables of runs and studies."""
