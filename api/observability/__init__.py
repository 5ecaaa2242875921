"""Figures about the service for Prometheus and /stats."""
