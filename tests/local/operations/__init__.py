"""What people do: the command, drills, upgrades, renaming and taking over."""
