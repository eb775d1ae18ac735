"""The commands, one module for each family: parse, call one operation, print."""
