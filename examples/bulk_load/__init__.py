"""A thousand small files into PostgreSQL in ten writes."""
