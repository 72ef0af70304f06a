"""MCP over Streamable HTTP, for several clients and for more than one machine.

Nothing here is imported by a server on stdio.
"""
