"""The rules of synthesis, a module for each subject: each with its finding, reason and fix.

The code that checks a rule imports it, in any folder.
"""
