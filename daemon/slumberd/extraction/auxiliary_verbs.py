"""The forms of auxiliary verbs that the expressions of conversations share."""

BE = "(?:am|is|are)"
BEEN = "(?:am|is|are|have been|has been)"
HAVE = "(?:have|has)"
SINCE = "(?: (?:for|since|ever since|all my life|my whole life).*)"
