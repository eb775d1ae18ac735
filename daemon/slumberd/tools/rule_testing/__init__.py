"""Test rules: test files, previews on a copy of the data, differences between rule sets."""
