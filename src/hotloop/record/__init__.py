"""The recording: what one run left on disk. The writing half uses the standard library only."""
