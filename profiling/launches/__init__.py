"""Which kernels a call launches."""
