"""How a stranger's code runs: zygote, launcher, channel, arena, and the runner itself."""
