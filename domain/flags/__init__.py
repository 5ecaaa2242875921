"""Flags: coded warnings beside a verdict, each with a sentence for people and its figures for programs."""
