"""Reports: results are summarised as a plain dict, which is rendered as one self-contained page."""
