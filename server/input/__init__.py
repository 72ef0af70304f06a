"""What came as JSON, as commands: schemas, and every problem in words."""
