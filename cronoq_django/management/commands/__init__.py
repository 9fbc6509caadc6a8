"""The commands: thin. Parse, call, print."""
