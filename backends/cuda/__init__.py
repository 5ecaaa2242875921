"""Kernel type `cuda`: raw CUDA C++."""
