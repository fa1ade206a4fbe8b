"""Pipelines of objects: the catalogue, existing resources, rates, tags and outputs."""
