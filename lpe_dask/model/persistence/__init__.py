"""A model on disk: manifest, saving, loading, checkpoints of fits."""
