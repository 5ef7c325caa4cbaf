def report(batch:
