"""Uploaded images, as WebP on the pages that show them."""
