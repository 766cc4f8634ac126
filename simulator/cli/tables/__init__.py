"""What people read on standard output: tables, and what their columns mean."""
