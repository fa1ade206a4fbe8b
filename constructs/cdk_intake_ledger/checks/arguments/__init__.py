"""Checks the arguments of the public classes against their annotations.

A module with a public class imports `checking`.
"""
