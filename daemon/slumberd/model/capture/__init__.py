"""What slumberd leaves out of texts before they become episodes."""
