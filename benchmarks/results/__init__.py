"""Measured figures as data files, and the page that is generated from them."""
