"""A job fits its model again by policy, and keeps the old one if the new one is worse."""
