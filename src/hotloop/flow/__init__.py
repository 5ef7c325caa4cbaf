"""One file a chain, in plain functions; read these first.

``observe`` runs a command, ``examine`` measures and diagnoses its recording; ``what_if``, ``tune``, ``fix``,
``verify`` and ``brief`` are made of these two and say what comes between. Nothing is imported here: the
command starts before what examines it is loaded.
"""
