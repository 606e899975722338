"""Code blocks of pages on trials and their service run."""

from page_blocks import blocks_run

test_blocks_run = blocks_run("service")
