"""Take over what other memories hold, audit it, and export what this one holds."""
