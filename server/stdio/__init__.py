"""The transport over stdin and stdout, to the byte."""
