"""Requests of people."""
