"""A command line of spgnn in this process."""

from spgnn import cli


def run(capsys, *argv) -> tuple[int, str, str]:
    """Return (exit code, stdout, stderr) of one command line."""
    code = cli.main([str(word) for word in argv])
    return code, *capsys.readouterr()
