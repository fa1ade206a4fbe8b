"""An example: what became of each invoice, as events on a bus."""
