"""More than sixty apps with a pipeline among other resources, each synthesised on the oldest and the newest CDK."""
