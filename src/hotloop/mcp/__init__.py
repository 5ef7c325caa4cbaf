"""What ``hotloop mcp`` serves to coding agents; every tool is a verb as a child process."""
