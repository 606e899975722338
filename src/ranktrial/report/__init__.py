"""Reports of a trial: their schema, the charts and pages that show them, and files to keep or send."""
