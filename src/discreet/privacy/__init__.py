"""The privacy core: what is promised, what was run, what it costs, and who has spent it."""
