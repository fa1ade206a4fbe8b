"""The checks, without an account, of the assumptions about AWS: `make truth`."""
