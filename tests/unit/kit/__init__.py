"""The testing kit, which users test their processors with."""
