"""Outputs, rejected rows and transactions of processors."""
