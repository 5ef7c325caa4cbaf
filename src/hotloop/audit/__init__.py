"""Static rules over source, configuration and machine; nothing audited is ever executed."""
