"""Named synthetic runs with a known truth, built as the rows and notes a probe would have written."""
