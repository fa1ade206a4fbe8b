"""An example: orders that arrive as events are booked from a stock, each once."""
