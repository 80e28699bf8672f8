"""Operator commands. They read the log and the database directly, as nobody else beside the log itself does."""
