"""Decides who may send requests."""
