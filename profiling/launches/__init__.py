"""Reports which kernels a call launches."""
