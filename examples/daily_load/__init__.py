"""Files of a day and their manifest, which become one load."""
