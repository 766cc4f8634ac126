"""What a run says: its ledger, tables, waits and decisions, and its memory address by address."""
