"""Pure decisions: rows, states, verdicts, reasons and settings."""
