"""Requests of people: the messages of a reprocess or a redrive, recorded until they are served.

The command writes a record before it sends the messages of a batch. The audit looks at the rows, and sends the
outstanding requests again. See docs/protocol.md, "Requests of people".
"""
