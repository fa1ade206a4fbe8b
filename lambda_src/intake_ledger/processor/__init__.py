"""Call processors, and give them the content of an object."""
