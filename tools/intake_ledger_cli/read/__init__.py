"""The commands that look, and what they find."""
