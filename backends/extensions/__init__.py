"""C++ and CUDA extensions that a Python submission builds."""
