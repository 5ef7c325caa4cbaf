"""Sections of the HTML page: one file each, a function of the report that returns markup."""
