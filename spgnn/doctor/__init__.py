"""Check an installation, and measure the rates of a machine file."""
