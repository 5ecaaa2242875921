"""Schemas of HTTP bodies: requests, fully validated on arrival, and responses for the OpenAPI document."""
