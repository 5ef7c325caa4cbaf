"""Loops over parameters, written as calls for all of them."""
