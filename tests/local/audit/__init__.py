"""The audit and its check of the delivery."""
