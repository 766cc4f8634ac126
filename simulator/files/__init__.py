"""Files written whole or not at all, and what only one process may have at a time."""
