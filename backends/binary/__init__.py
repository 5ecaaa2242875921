"""Compiled code: cubins, toolkit, disassembly."""
