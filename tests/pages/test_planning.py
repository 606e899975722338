"""Code blocks of the page on planning run."""

from page_blocks import blocks_run

test_blocks_run = blocks_run("planning")
