"""What a fit learns before it measures: scale, metric, weights of categories."""
