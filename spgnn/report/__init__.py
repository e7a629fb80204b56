"""HTML page, table and figures of one run or of several."""
