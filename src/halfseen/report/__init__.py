"""Reports: results become a plain dict, and the dict becomes one self-contained page."""
