"""From settings to jobs, and from jobs to an end report."""
