"""Schedulers, a file each: what grows, who is preempted and who is admitted in an iteration."""
