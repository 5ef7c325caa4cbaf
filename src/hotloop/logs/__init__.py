"""Other people's records: text logs, event files, histories, GPU samples, profiler traces."""
