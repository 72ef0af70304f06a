"""How a client reaches it: tools, schemas, transport, command line."""

from server.inherited import forget_what_is_for_others

forget_what_is_for_others()
