"""HTTP and the Model Context Protocol: the table of operations, served to other programs."""
