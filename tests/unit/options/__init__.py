"""Options that have rooms of their own: tags, rates and events out."""
