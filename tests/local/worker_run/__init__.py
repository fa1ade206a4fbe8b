"""Workers outside of Lambda that are killed and stopped again and again."""

STACK = "Worked"
