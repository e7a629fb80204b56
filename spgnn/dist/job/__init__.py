"""What keeps a job of several processes from hanging or leaving processes behind: guard, watchdog, exit hooks."""
