"""Worker processes of the suites."""
