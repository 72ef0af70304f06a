"""The first answers of a conversation, given before the SDK is imported."""
