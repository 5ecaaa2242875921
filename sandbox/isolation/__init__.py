"""The layers that confine a process: users, Landlock, seccomp, limits, namespaces, cgroups."""
