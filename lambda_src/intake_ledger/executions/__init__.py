"""Work that answers later: names and inputs of executions, the requests to their place, and the next step."""
