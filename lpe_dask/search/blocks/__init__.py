"""Blocks of nominal rows: packed, in memory, in a spool, and in a saved model."""
