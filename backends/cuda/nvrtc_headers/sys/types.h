// The contents of <sys/types.h>, which nvcc includes implicitly.
#pragma once
typedef unsigned short ushort; typedef unsigned int uint; typedef unsigned long ulong; typedef long ssize_t;
