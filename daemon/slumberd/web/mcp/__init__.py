"""The daemon's operations as tools, resources and prompts of the Model Context Protocol."""
