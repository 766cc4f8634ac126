"""Synthetic traces: lengths drawn from a measured profile, arrivals from a process."""
