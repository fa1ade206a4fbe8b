"""The commands that act, each by `operations.acting`.

A function that gets the clients raises botocore's ClientError if AWS refuses a request. The command then ends with one
line about it. Docstrings name the other errors.
"""
