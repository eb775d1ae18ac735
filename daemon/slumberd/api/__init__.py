"""HTTP and the Model Context Protocol, in the daemon's own event loop."""
