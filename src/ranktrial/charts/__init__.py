"""Charts as files, interactive pages that need no network, and the page of a live trial."""
