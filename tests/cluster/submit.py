"""Submit a batch script, wait for it and end with its exit code; `sbatch --wait` asks only every half minute.

python submit.py ARGUMENTS OF sbatch...
"""

import re
import subprocess
import sys
import time


def main() -> None:
    submitted = subprocess.run(["sbatch", "--parsable", *sys.argv[1:]], stdout=subprocess.PIPE, text=True, check=True)
    job = submitted.stdout.strip()
    while True:
        shown = subprocess.run(["scontrol", "show", "job", job], stdout=subprocess.PIPE, text=True, check=True).stdout
        if not re.search(r"JobState=(PENDING|CONFIGURING|RUNNING|COMPLETING)\b", shown):
            code, number = map(int, re.search(r"ExitCode=(\d+):(\d+)", shown).groups())
            sys.exit(code or (128 + number if number else 0))
        time.sleep(0.2)


if __name__ == "__main__":
    main()
