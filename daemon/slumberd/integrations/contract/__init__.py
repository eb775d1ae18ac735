"""The synchronous memory contract: its values, its protocol, and a store that keeps episodes."""
