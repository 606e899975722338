"""Code blocks of the tutorial run."""

from page_blocks import blocks_run

test_blocks_run = blocks_run("tutorial")
