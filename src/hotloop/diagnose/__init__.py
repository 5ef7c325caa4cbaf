"""From one run's evidence to named causes with their cost: ``diagnose``, ``bottleneck`` and ``verdict``."""
