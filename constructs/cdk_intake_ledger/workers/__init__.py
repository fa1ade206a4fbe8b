"""Workers outside of Lambda, as a service on ECS."""
