"""Static rules over source, configuration and machine; nothing audited is ever executed.

``audit.audit`` is the whole. ``files`` and ``configs`` read, ``program`` is what a rule looks at: modules,
training regions, loaders, datasets, configurations. ``rules`` has a file a family; ``patterns``
is what rules are made with; their words that are no more than the finding's own stand in
``hotloop.findings``.
"""
