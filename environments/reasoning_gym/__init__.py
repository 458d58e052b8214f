"""More than a hundred generated reasoning tasks, each scored by its own scorer of the reasoning-gym library."""
