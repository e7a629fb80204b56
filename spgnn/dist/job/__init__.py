"""Guard, watchdog and exit hooks: they keep a job of several processes from hanging or leaving processes behind."""
