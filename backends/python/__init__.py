"""Kernel types whose sources run on the host: Python modules, and C++ behind one."""
