"""The only place that parses the user's Python. Standard library only, nothing is executed.

- ``text``: a file as ``Text`` that is edited by spans (``Edit``) and written back byte for byte; ``diff``.
- ``code``: ``Code``, a parsed file: nodes in the order of the file, spans as characters, the call that runs
  at a line and column, what stands around a node. ``parsed(text)`` and ``code_of(text)`` cache.
- ``scopes``: what each name is bound to (``Binding``), and which reads mean it; ``Code.bindings``,
  ``Code.references``, ``Code.qualified`` (``torch.utils.data.DataLoader`` of an imported name) ask it.
- ``nodes``: questions about one node: ``argument`` of a call, ``last_name``, ``chain``, ``literal``.
- ``values``: what an expression stands for: ``value`` and ``constant`` through names bound once, attributes
  of ``self``, the call that made something.
- ``effects``: the one table of methods and functions by effect: what changes what it is called on or given,
  what draws random numbers, what is pure.
- ``flow``: reads and writes of a statement, whether it is pure, and the loops that it stands in.
- ``loops``: loops over batches, and what stands around a line. ``stateful``: what making a sample
  does with the attributes of a dataset.
- ``tokens``: commas, parentheses and comments, where an edit needs them.
- ``written``: what source text says of a setting: where an argument was written, what it is compared with.
"""
